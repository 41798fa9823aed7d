"""Server-side apply, after structured-merge-diff: field ownership and the merge of applied configurations."""
