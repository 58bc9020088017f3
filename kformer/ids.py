"""The four ids that are no text, the same in every vocabulary, model and search."""

PAD_ID = 0
UNK_ID = 1
START_ID = 2
END_ID = 3
