"""Export of run folders for serving. Nothing is exported yet."""
