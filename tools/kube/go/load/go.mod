module bramley.invalid/tools/load

go 1.24.0
