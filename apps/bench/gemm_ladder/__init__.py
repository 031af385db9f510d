"""Matrix products from three loops to the library's kernel, one idea per step."""
