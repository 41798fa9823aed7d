"""Objects as rows of a table, with the columns and texts of kube-apiserver; knows neither HTTP nor the store."""
