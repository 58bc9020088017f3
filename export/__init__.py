"""Run folders for serving: SavedModels, what a server wants beside them, and a client."""
