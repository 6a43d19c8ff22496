package toolcell

import (
	"maps"
	"strconv"
	"strings"
)

// maxBody is the maximum size of the body of a response, in bytes, unless the request says more.
const maxBody = 8 << 20

// Request is one over HTTP. What is empty has its default.
type Request struct {
	URL string
	// Method is GET by default.
	Method string
	Header map[string]string
	Body   []byte
	// MaxBody is the maximum size of the body of the response, in bytes, by default 8 MiB.
	MaxBody int
}

// Response is the answer to a request.
type Response struct {
	Status int
	// Header has the headers by their names in lower case.
	Header map[string]string
	Body   []byte
}

// Get sends a request with GET.
func Get(url string) (Response, error) { return Send(Request{URL: url}) }

// Send sends a request to a granted host, and waits for the whole response.
func Send(request Request) (Response, error) {
	if request.Method == "" {
		request.Method = "GET"
	}
	if request.MaxBody == 0 {
		request.MaxBody = maxBody
	}
	header := maps.Clone(request.Header)
	if header == nil {
		header = map[string]string{}
	}
	hasLength := false
	for name := range header {
		hasLength = hasLength || strings.EqualFold(name, "Content-Length")
	}
	hasBody := len(request.Body) > 0 || request.Method != "GET" && request.Method != "HEAD"
	// Many servers take no body without its length.
	if hasBody && !hasLength {
		header["Content-Length"] = strconv.Itoa(len(request.Body))
	}
	request.Header = header
	return send(request)
}
