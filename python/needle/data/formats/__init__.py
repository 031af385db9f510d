"""Conversions between bytes and arrays: file formats and downloads, independent of Dataset.

IDX, restricted pickles, JPEG and PNG decoding, Arrow columns, tar shards, string tables, downloads
and archives. Called by the datasets.
"""
