// The conformance fixture in C.
#include "toolcell.h"
#include "toolcell_http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int calls = 0;

static tc_result *echo(const tc_call *call) {
    tc_string text = tc_text_of(call, "text");
    size_t characters = 0;
    for (size_t i = 0; i < text.size; i++) characters += (text.data[i] & 0xc0) != 0x80;
    tc_log(TC_INFO, "echoing %zu", characters);
    tc_progress(1, 2, "half");
    return tc_text_n(text.data, text.size);
}

static tc_result *add(const tc_call *call) {
    double sum = tc_number(call, "left", 0) + tc_number(call, "right", 0);
    char json[64];
    int size = snprintf(json, sizeof json, "{\"sum\":%.0f}", tc_boolean(call, "negate", false) ? -sum : sum);
    return tc_structured(tc_text_n(json, (size_t)size), json, (size_t)size);
}

static tc_result *fail(const tc_call *call) {
    const char *kind = tc_text_of(call, "kind").data;
    if (!strcmp(kind, "invalid_arguments")) return tc_invalid("as asked: %s é", kind);
    if (!strcmp(kind, "denied")) return tc_denied("as asked: %s é", kind);
    if (!strcmp(kind, "unavailable")) return tc_unavailable("as asked: %s é", kind);
    return tc_failed("as asked: %s é", kind);
}

static tc_result *parts(const tc_call *call) {
    (void)call;
    tc_result *result = tc_text("text");
    tc_add_blob(result, "image/png", "\0\xff\x80", 3);
    return tc_add_link(result, "https://example.org/x", "an example");
}

static tc_result *count(const tc_call *call) {
    (void)call;
    return tc_text("%d", ++calls);
}

static tc_result *crash(const tc_call *call) {
    (void)call;
    abort();
}

static tc_result *read_file(const tc_call *call) {
    tc_string path = tc_text_of(call, "path");
    FILE *file = fopen(path.data, "r");
    if (!file) return tc_failed("%s: %s", path.data, strerror(errno));
    static char content[1 << 16];
    size_t size = fread(content, 1, sizeof content, file);
    fclose(file);
    return tc_text_n(content, size);
}

static tc_result *get_url(const tc_call *call) {
    tc_request request = {.url = tc_text_of(call, "url").data, .body = tc_text_of(call, "body")};
    if (request.body.size) request.method = "POST";
    tc_response response = tc_send(&request);
    if (response.error) return response.error;
    return tc_text("%d %.*s", response.status, (int)response.body.size, response.body.data);
}

static const tc_parameter TEXT[] = {{.name = "text", .kind = TC_STRING, .description = "The text."}};
static const tc_parameter SUM[] = {
    {.name = "left", .kind = TC_INTEGER, .description = "The first."},
    {.name = "right", .kind = TC_INTEGER, .description = "The second."},
    {.name = "negate", .kind = TC_BOOLEAN, .description = "Negate the sum.", .optional = true},
};
static const tc_parameter KIND[] = {{.name = "kind",
                                     .kind = TC_STRING,
                                     .description = "The kind.",
                                     .rules = "\"enum\":[\"invalid_arguments\",\"denied\",\"unavailable\",\"failed\"]"}};
static const tc_parameter PATH[] = {{.name = "path", .kind = TC_STRING, .description = "The file."}};
static const tc_parameter URL[] = {
    {.name = "url", .kind = TC_STRING, .description = "The address."},
    {.name = "body", .kind = TC_STRING, .description = "What is sent; without it nothing is.", .optional = true},
};

static const tc_tool TOOLS[] = {
    {.name = "echo", .description = "Returns a text.", TC_PARAMETERS(TEXT), .run = echo},
    {.name = "add", .description = "Adds two numbers.", TC_PARAMETERS(SUM), .run = add, .read_only = true},
    {.name = "fail", .description = "Fails.", TC_PARAMETERS(KIND), .run = fail},
    {.name = "parts", .description = "Returns several parts.", .run = parts},
    {.name = "count", .description = "Counts its calls.", .run = count},
    {.name = "crash", .description = "Crashes.", .run = crash},
    {.name = "read_file", .description = "Reads a file.", TC_PARAMETERS(PATH), .run = read_file},
    {.name = "get_url", .description = "Sends a request.", TC_PARAMETERS(URL), .run = get_url},
};
TC_TOOLS(TOOLS)
