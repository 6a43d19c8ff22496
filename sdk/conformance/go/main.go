// The conformance fixture in Go.
package main

import (
	"fmt"
	"unicode/utf8"

	"example.com/conformance/toolcell"
)

var calls int

type text struct {
	Text string `json:"text" description:"The text."`
}

type sum struct {
	Left   int  `json:"left" description:"The first."`
	Right  int  `json:"right" description:"The second."`
	Negate bool `json:"negate,omitempty" description:"Negate the sum."`
}

type failure struct {
	Kind string `json:"kind" description:"The kind." schema:"\"enum\":[\"invalid_arguments\",\"denied\",\"unavailable\",\"failed\"]"`
}

type path struct {
	Path string `json:"path" description:"The file."`
}

type address struct {
	URL  string `json:"url" description:"The address."`
	Body string `json:"body,omitempty" description:"What is sent; without it nothing is."`
}

type nothing struct{}

func init() {
	none := toolcell.Options{}
	toolcell.Tool("echo", "Returns a text.", none, func(given text, _ toolcell.Call) (any, error) {
		toolcell.Log(toolcell.Info, "echoing %d", utf8.RuneCountInString(given.Text))
		toolcell.Progress(1, 2, "half")
		return given.Text, nil
	})
	toolcell.Tool("add", "Adds two numbers.", toolcell.Options{ReadOnly: true}, func(given sum, _ toolcell.Call) (any, error) {
		total := given.Left + given.Right
		if given.Negate {
			total = -total
		}
		return map[string]int{"sum": total}, nil
	})
	toolcell.Tool("fail", "Fails.", none, func(given failure, _ toolcell.Call) (any, error) {
		errors := map[string]func(string, ...any) error{
			"invalid_arguments": toolcell.Invalid, "denied": toolcell.Denied, "unavailable": toolcell.Unavailable,
			"failed": fmt.Errorf,
		}
		return nil, errors[given.Kind]("as asked: %s é", given.Kind)
	})
	toolcell.Tool("parts", "Returns several parts.", none, func(nothing, toolcell.Call) (any, error) {
		return toolcell.Result{Parts: []toolcell.Part{
			toolcell.Text("text"),
			toolcell.Blob("image/png", []byte{0, 255, 128}),
			toolcell.Link("https://example.org/x", "an example"),
		}}, nil
	})
	toolcell.Tool("count", "Counts its calls.", none, func(nothing, toolcell.Call) (any, error) {
		calls++
		return fmt.Sprint(calls), nil
	})
	toolcell.Tool("crash", "Crashes.", none, func(nothing, toolcell.Call) (any, error) {
		panic("out of cheese 42")
	})
	toolcell.Tool("read_file", "Reads a file.", none, func(given path, _ toolcell.Call) (any, error) {
		content, err := toolcell.ReadFile(given.Path)
		return string(content), err
	})
	toolcell.Tool("get_url", "Sends a request.", none, func(given address, _ toolcell.Call) (any, error) {
		request := toolcell.Request{URL: given.URL, Body: []byte(given.Body)}
		if given.Body != "" {
			request.Method = "POST"
		}
		response, err := toolcell.Send(request)
		if err != nil {
			return nil, err
		}
		return fmt.Sprintf("%d %s", response.Status, response.Body), nil
	})
}

func main() {}
