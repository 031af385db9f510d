"""What users complain of in data loaders, as tests; README.md says which is where."""
