"""Frequent complaints about data loaders, as tests; README.md lists them."""
