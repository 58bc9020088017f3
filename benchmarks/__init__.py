"""Speed and quality, measured; one command each."""
