package toolcell

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
	return send(request)
}
