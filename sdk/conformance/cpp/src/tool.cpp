// The conformance fixture in C++.
#include "toolcell.hpp"
#include "toolcell_http.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static int calls = 0;

static toolcell::result echo(const toolcell::call &call) {
    std::string_view text = call.text("text");
    size_t characters = 0;
    for (char c : text) characters += (c & 0xc0) != 0x80;
    toolcell::log("echoing " + std::to_string(characters));
    tc_progress(1, 2, "half");
    return text;
}

static toolcell::result add(const toolcell::call &call) {
    long sum = static_cast<long>(call.number("left") + call.number("right"));
    std::string json = "{\"sum\":" + std::to_string(call.boolean("negate") ? -sum : sum) + "}";
    return toolcell::result(json).structured(json);
}

static toolcell::result fail(const toolcell::call &call) {
    std::string kind(call.text("kind")), message = "as asked: " + kind + " é";
    if (kind == "invalid_arguments") return toolcell::invalid(message);
    if (kind == "denied") return toolcell::denied(message);
    if (kind == "unavailable") return toolcell::unavailable(message);
    return toolcell::failed(message);
}

static toolcell::result parts(const toolcell::call &) {
    using namespace std::string_view_literals;
    return toolcell::result("text").blob("image/png", "\0\xff\x80"sv).link("https://example.org/x", "an example");
}

static toolcell::result count(const toolcell::call &) { return std::to_string(++calls); }

static toolcell::result crash(const toolcell::call &) { std::abort(); }

static toolcell::result read_file(const toolcell::call &call) {
    std::string path(call.text("path")), content;
    FILE *file = std::fopen(path.c_str(), "r");
    if (!file) return toolcell::failed(path + ": " + std::strerror(errno));
    char chunk[4096];
    while (size_t size = std::fread(chunk, 1, sizeof chunk, file)) content.append(chunk, size);
    std::fclose(file);
    return content;
}

static toolcell::result get_url(const toolcell::call &call) {
    std::string url(call.text("url")), body(call.text("body"));
    tc_request request = {};
    request.url = url.c_str();
    if (!body.empty()) {
        request.method = "POST";
        request.body = {body.data(), body.size()};
    }
    tc_response response = tc_send(&request);
    if (response.error) return toolcell::result(response.error);
    return std::to_string(response.status) + " " + std::string(response.body.data, response.body.size);
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

using toolcell::run;
static const tc_tool TOOLS[] = {
    {.name = "echo", .description = "Returns a text.", TC_PARAMETERS(TEXT), .run = run<echo>},
    {.name = "add", .description = "Adds two numbers.", TC_PARAMETERS(SUM), .run = run<add>, .read_only = true},
    {.name = "fail", .description = "Fails.", TC_PARAMETERS(KIND), .run = run<fail>},
    {.name = "parts", .description = "Returns several parts.", .run = run<parts>},
    {.name = "count", .description = "Counts its calls.", .run = run<count>},
    {.name = "crash", .description = "Crashes.", .run = run<crash>},
    {.name = "read_file", .description = "Reads a file.", TC_PARAMETERS(PATH), .run = run<read_file>},
    {.name = "get_url", .description = "Sends a request.", TC_PARAMETERS(URL), .run = run<get_url>},
};
TC_TOOLS(TOOLS)
