module github.com/holdfast-go/holdfast/scripts

go 1.26.0
