"""Data sets as a few large tar files: what lies in a source, and how shards of it are written."""
