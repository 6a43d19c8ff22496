//go:build !wasip1

package toolcell

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

func send(request Request) (Response, error) {
	outgoing, err := http.NewRequest(request.Method, request.URL, bytes.NewReader(request.Body))
	if err != nil {
		return Response{}, Invalid("%v", err)
	}
	for name, value := range request.Header {
		outgoing.Header.Set(name, value)
	}
	incoming, err := http.DefaultTransport.RoundTrip(outgoing)
	if err != nil {
		return Response{}, Unavailable("%s: %v", request.URL, err)
	}
	defer incoming.Body.Close()
	body, err := io.ReadAll(io.LimitReader(incoming.Body, int64(request.MaxBody)+1))
	if err != nil {
		return Response{}, Unavailable("%s: the response ended early", request.URL)
	}
	if len(body) > request.MaxBody {
		return Response{}, Failed("%s: the response has more than %d bytes", request.URL, request.MaxBody)
	}
	header := map[string]string{}
	for name, values := range incoming.Header {
		header[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return Response{Status: incoming.StatusCode, Header: header, Body: body}, nil
}
