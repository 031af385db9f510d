"""Regression tests for frequent complaints about data loaders; README.md lists the complaints."""
