// Requests to hosts that are granted, with "http" in `wasi` of tool.toml.
#ifndef TOOLCELL_HTTP_H
#define TOOLCELL_HTTP_H

#include "toolcell.h"

#ifdef __cplusplus
extern "C" {
#endif

// A header. Of a response, the name is in lower case.
typedef struct {
    const char *name;
    tc_string value;
} tc_header;

// A request. What is zero has its default.
typedef struct {
    const char *url;
    const char *method; // GET
    const tc_header *headers;
    size_t header_count;
    tc_string body;
    size_t max_body; // maximum size of the body of the response in bytes, 8 MiB
} tc_request;

// A response, or the error for the tool to return.
typedef struct {
    tc_result *error; // NULL, or else nothing more is set
    int status;
    tc_string body;
    const tc_header *headers;
    size_t header_count;
} tc_response;

// Sends a request and waits for the whole response.
tc_response tc_send(const tc_request *request);
// The same, with GET.
tc_response tc_get_url(const char *url);

#ifdef __cplusplus
}
#endif
#endif
