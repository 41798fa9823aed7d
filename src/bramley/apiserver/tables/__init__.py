"""Objects as rows of a table, in the columns and words of a real server; HTTP and the store are not known here."""
