module github.com/toolcell/toolcell/sdk/go

go 1.24
