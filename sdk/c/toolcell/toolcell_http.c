// Requests through wasi:http in the canonical ABI. C that is also C++.
#include "toolcell_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Maximum size of the body of a response, in bytes, unless the request says more.
#define MAX_BODY (8u << 20)
// Bytes that are written at once: the most that a stream of WASI takes.
#define WRITTEN 4096
// Bytes that are read at once.
#define READ 65536

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define TYPES "wasi:http/types@0.2.12"
#define STREAMS "wasi:io/streams@0.2.12"

typedef int32_t handle;

IMPORT(TYPES, "[constructor]fields") handle host_new_fields(void);
IMPORT(TYPES, "[method]fields.append")
void host_append(handle fields, const char *name, size_t size, const char *value, size_t value_size, void *returned);
IMPORT(TYPES, "[method]fields.entries") void host_entries(handle fields, void *returned);
IMPORT(TYPES, "[constructor]outgoing-request") handle host_new_request(handle headers);
IMPORT(TYPES, "[method]outgoing-request.set-method")
int32_t host_set_method(handle request, int32_t method, const char *name, size_t size);
IMPORT(TYPES, "[method]outgoing-request.set-scheme")
int32_t host_set_scheme(handle request, int32_t is_some, int32_t scheme, const char *name, size_t size);
IMPORT(TYPES, "[method]outgoing-request.set-authority")
int32_t host_set_authority(handle request, int32_t is_some, const char *text, size_t size);
IMPORT(TYPES, "[method]outgoing-request.set-path-with-query")
int32_t host_set_path(handle request, int32_t is_some, const char *text, size_t size);
IMPORT(TYPES, "[method]outgoing-request.body") void host_body_of(handle request, void *returned);
IMPORT(TYPES, "[method]outgoing-body.write") void host_output_of(handle body, void *returned);
IMPORT(TYPES, "[static]outgoing-body.finish")
void host_finish(handle body, int32_t has_trailers, handle trailers, void *returned);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush")
void host_write_and_flush(handle stream, const char *bytes, size_t size, void *returned);
IMPORT(STREAMS, "[resource-drop]output-stream") void host_drop_output(handle stream);
IMPORT("wasi:http/outgoing-handler@0.2.12", "handle")
void host_handle_request(handle request, int32_t has_options, handle options, void *returned);
IMPORT(TYPES, "[method]future-incoming-response.subscribe") handle host_subscribe(handle future);
IMPORT("wasi:io/poll@0.2.12", "[method]pollable.block") void host_block(handle pollable);
IMPORT(TYPES, "[method]future-incoming-response.get") void host_response_of(handle future, void *returned);
IMPORT(TYPES, "[method]incoming-response.status") int32_t host_status_of(handle response);
IMPORT(TYPES, "[method]incoming-response.headers") handle host_headers_of(handle response);
IMPORT(TYPES, "[method]incoming-response.consume") void host_consume(handle response, void *returned);
IMPORT(TYPES, "[method]incoming-body.stream") void host_input_of(handle body, void *returned);
IMPORT(STREAMS, "[method]input-stream.blocking-read")
void host_blocking_read(handle stream, int64_t size, void *returned);

// Methods and errors of WASI in their order.
static const char *const METHODS[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};
static const char *const ERRORS[] = {
    "DNS-timeout",
    "DNS-error",
    "destination-not-found",
    "destination-unavailable",
    "destination-IP-prohibited",
    "destination-IP-unroutable",
    "connection-refused",
    "connection-terminated",
    "connection-timeout",
    "connection-read-timeout",
    "connection-write-timeout",
    "connection-limit-reached",
    "TLS-protocol-error",
    "TLS-certificate-error",
    "TLS-alert-received",
    "HTTP-request-denied",
    "HTTP-request-length-required",
    "HTTP-request-body-size",
    "HTTP-request-method-invalid",
    "HTTP-request-URI-invalid",
    "HTTP-request-URI-too-long",
    "HTTP-request-header-section-size",
    "HTTP-request-header-size",
    "HTTP-request-trailer-section-size",
    "HTTP-request-trailer-size",
    "HTTP-response-incomplete",
    "HTTP-response-header-section-size",
    "HTTP-response-header-size",
    "HTTP-response-body-size",
    "HTTP-response-trailer-section-size",
    "HTTP-response-trailer-size",
    "HTTP-response-transfer-coding",
    "HTTP-response-content-coding",
    "HTTP-response-timeout",
    "HTTP-upgrade-failed",
    "HTTP-protocol-error",
    "loop-detected",
    "configuration-error",
    "internal-error",
};
#define COUNT(list) (sizeof(list) / sizeof(*(list)))
#define DENIED 15

// What the functions of the host return, by the offsets of the canonical ABI.
typedef union {
    uint8_t bytes[64];
    uint32_t words[16];
    uint64_t alignment;
} returned;

static tc_response failure(tc_result *error) {
    tc_response response;
    memset(&response, 0, sizeof response);
    response.error = error;
    return response;
}

// The error that is stored at an offset.
static tc_response error_at(const char *url, const returned *given, size_t offset) {
    uint8_t code = given->bytes[offset];
    const char *name = code < COUNT(ERRORS) ? ERRORS[code] : "error";
    return failure(code == DENIED ? tc_denied("%s: %s", url, name) : tc_unavailable("%s: %s", url, name));
}

// Sends a body. Returns false if it was closed before its end.
static bool send_body(handle body, tc_string bytes) {
    if (!bytes.size) return true;
    returned given;
    host_output_of(body, &given);
    handle stream = (handle)given.words[1];
    for (size_t at = 0; at < bytes.size; at += WRITTEN) {
        size_t rest = bytes.size - at;
        host_write_and_flush(stream, bytes.data + at, rest < WRITTEN ? rest : WRITTEN, &given);
        if (given.bytes[0]) return false;
    }
    host_drop_output(stream);
    return true;
}

static char *grown(char *memory, size_t size) {
    memory = (char *)realloc(memory, size);
    if (!memory) __builtin_trap();
    return memory;
}

typedef struct {
    tc_string name, value;
} entry;

static void read_headers(handle incoming, tc_response *response) {
    returned given;
    host_entries(host_headers_of(incoming), &given);
    const entry *list = (const entry *)(uintptr_t)given.words[0];
    response->header_count = given.words[1];
    tc_header *headers = (tc_header *)(void *)grown(NULL, (response->header_count + 1) * sizeof(tc_header));
    for (size_t i = 0; i < response->header_count; i++) {
        char *name = grown(NULL, list[i].name.size + 1);
        for (size_t k = 0; k < list[i].name.size; k++) {
            char c = list[i].name.data[k];
            name[k] = (char)(c >= 'A' && c <= 'Z' ? c | 32 : c);
        }
        name[list[i].name.size] = 0;
        char *value = grown(NULL, list[i].value.size + 1);
        if (list[i].value.size) memcpy(value, list[i].value.data, list[i].value.size);
        value[list[i].value.size] = 0;
        headers[i].name = name;
        headers[i].value.data = value;
        headers[i].value.size = list[i].value.size;
    }
    response->headers = headers;
}

static tc_response read_response(handle incoming, const char *url, size_t max_body) {
    tc_response response = failure(NULL);
    response.status = (int)host_status_of(incoming);
    read_headers(incoming, &response);
    returned given;
    host_consume(incoming, &given);
    host_input_of((handle)given.words[1], &given);
    handle stream = (handle)given.words[1];
    char *body = grown(NULL, 1);
    size_t size = 0;
    for (;;) {
        host_blocking_read(stream, READ, &given);
        if (given.bytes[0]) {
            // 1: the stream has ended.
            if (given.bytes[4] == 1) break;
            return failure(tc_unavailable("%s: the response ended early", url));
        }
        const char *part = (const char *)(uintptr_t)given.words[1];
        size_t length = given.words[2];
        if (size + length > max_body)
            return failure(tc_failed("%s: the response has more than %zu bytes", url, max_body));
        body = grown(body, size + length + 1);
        if (length) memcpy(body + size, part, length);
        size += length;
        free((void *)(uintptr_t)(length ? given.words[1] : 0));
    }
    body[size] = 0;
    response.body.data = body;
    response.body.size = size;
    return response;
}

tc_response tc_send(const tc_request *request) {
    const char *url = request->url;
    bool is_secure = !strncmp(url, "https://", 8);
    if (!is_secure && strncmp(url, "http://", 7)) return failure(tc_invalid("not a URL for HTTP: %s", url));
    const char *authority = url + (is_secure ? 8 : 7);
    const char *path = authority + strcspn(authority, "/?#");
    size_t path_size = strcspn(path, "#");
    char *target = grown(NULL, path_size + 2);
    size_t target_size = 0;
    if (*path != '/') target[target_size++] = '/';
    memcpy(target + target_size, path, path_size);
    target_size += path_size;

    returned given;
    handle fields = host_new_fields();
    bool has_length = false;
    for (size_t i = 0; i < request->header_count; i++) {
        const tc_header *header = &request->headers[i];
        has_length = has_length || !strcasecmp(header->name, "content-length");
        host_append(fields, header->name, strlen(header->name), header->value.data, header->value.size, &given);
        if (given.bytes[0]) return failure(tc_invalid("not a header of a request: %s", header->name));
    }
    const char *method = request->method ? request->method : "GET";
    // Many servers take no body without its length.
    if (!has_length && (request->body.size || (strcmp(method, "GET") && strcmp(method, "HEAD")))) {
        char length[24];
        int size = snprintf(length, sizeof length, "%zu", request->body.size);
        host_append(fields, "content-length", strlen("content-length"), length, (size_t)size, &given);
    }
    size_t number = 0;
    while (number < COUNT(METHODS) && strcmp(METHODS[number], method))
        number++;
    handle outgoing = host_new_request(fields);
    if (host_set_method(outgoing, (int32_t)number, method, strlen(method)) ||
        host_set_scheme(outgoing, 1, is_secure, "", 0) ||
        host_set_authority(outgoing, 1, authority, (size_t)(path - authority)) ||
        host_set_path(outgoing, 1, target, target_size))
        return failure(tc_invalid("not a URL for HTTP: %s", url));

    host_body_of(outgoing, &given);
    handle body = (handle)given.words[1];
    host_handle_request(outgoing, 0, 0, &given);
    if (given.bytes[0]) return error_at(url, &given, 8);
    handle future = (handle)given.words[2];
    // A request that is refused closes its body; the answer has the reason.
    if (send_body(body, request->body)) {
        returned ignored;
        host_finish(body, 0, 0, &ignored);
    }
    host_block(host_subscribe(future));
    host_response_of(future, &given);
    if (given.bytes[8]) return failure(tc_failed("%s: the response was taken already", url));
    if (given.bytes[16]) return error_at(url, &given, 24);
    return read_response((handle)given.words[6], url, request->max_body ? request->max_body : MAX_BODY);
}

tc_response tc_get_url(const char *url) {
    tc_request request;
    memset(&request, 0, sizeof request);
    request.url = url;
    return tc_send(&request);
}
