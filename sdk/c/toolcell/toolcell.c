// The exports of a tool component in the canonical ABI, and a reader of JSON. C that is also C++.
#include "toolcell.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Maximum nesting of arguments. The host accepts less.
#define MAX_DEPTH 128

static void *allocate(size_t size) {
    void *memory = malloc(size ? size : 1);
    if (!memory) __builtin_trap();
    return memory;
}

static tc_string copy(const char *data, size_t size) {
    char *memory = (char *)allocate(size + 1);
    if (size) memcpy(memory, data, size);
    memory[size] = 0;
    tc_string text = {memory, size};
    return text;
}

// A text that grows.
typedef struct {
    char *data;
    size_t size, capacity;
} buffer;

static void put(buffer *b, const char *data, size_t size) {
    if (b->size + size > b->capacity) {
        b->capacity = 2 * (b->size + size);
        b->data = (char *)realloc(b->data, b->capacity);
        if (!b->data) __builtin_trap();
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_text(buffer *b, const char *text) { put(b, text, strlen(text)); }

static void put_json(buffer *b, const char *text) {
    put_text(b, "\"");
    for (; *text; text++) {
        char escape[8];
        if (*text == '"' || *text == '\\' || (unsigned char)*text < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)*text);
            put_text(b, escape);
        } else {
            put(b, text, 1);
        }
    }
    put_text(b, "\"");
}

// JSON. The host has checked it; invalid JSON reads as null.

typedef struct {
    const char *at, *end;
} reader;

static void skip(reader *r) {
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
        r->at++;
}

static bool take(reader *r, char c) {
    skip(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static unsigned hex(reader *r) {
    unsigned value = 0;
    for (int i = 0; i < 4 && r->at < r->end; i++, r->at++) {
        char c = *r->at;
        value = value * 16 + (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return value;
}

static void put_code(buffer *b, unsigned code) {
    char bytes[4];
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 63));
    bytes[0] = (char)(lead[size] | code);
    put(b, bytes, size);
}

static tc_string read_string(reader *r) {
    buffer text = {0, 0, 0};
    while (r->at < r->end && *r->at != '"') {
        const char *start = r->at;
        while (r->at < r->end && *r->at != '"' && *r->at != '\\')
            r->at++;
        put(&text, start, (size_t)(r->at - start));
        if (r->at == r->end || *r->at != '\\' || ++r->at == r->end) continue;
        char c = *r->at++;
        if (c == 'u') {
            unsigned code = hex(r);
            if (code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
                r->at += 2;
                code = 0x10000 + ((code - 0xd800) << 10) + (hex(r) - 0xdc00);
            }
            put_code(&text, code);
        } else {
            static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
            const char *found = strchr(from, c);
            put(&text, found ? &to[found - from] : &c, 1);
        }
    }
    if (r->at < r->end) r->at++;
    tc_string result = copy(text.data, text.size);
    free(text.data);
    return result;
}

static tc_value read_value(reader *r, int depth) {
    tc_value value;
    memset(&value, 0, sizeof value);
    skip(r);
    if (r->at == r->end || depth > MAX_DEPTH) {
        r->at = r->end;
        return value;
    }
    bool is_object = *r->at == '{';
    if (is_object || *r->at == '[') {
        value.kind = is_object ? TC_OBJECT : TC_ARRAY;
        char close = is_object ? '}' : ']';
        r->at++;
        tc_value *values = NULL;
        tc_string *names = NULL;
        size_t capacity = 0;
        while (!take(r, close) && r->at < r->end) {
            if (value.size == capacity) {
                capacity = capacity ? 2 * capacity : 4;
                values = (tc_value *)realloc(values, capacity * sizeof *values);
                names = (tc_string *)realloc(names, capacity * sizeof *names);
                if (!values || !names) __builtin_trap();
            }
            if (is_object) {
                take(r, '"');
                names[value.size] = read_string(r);
                take(r, ':');
            }
            values[value.size++] = read_value(r, depth + 1);
            take(r, ',');
        }
        value.values = values;
        value.names = names;
    } else if (*r->at == '"') {
        r->at++;
        value.kind = TC_STRING;
        value.string = read_string(r);
    } else if (*r->at == 't' || *r->at == 'f') {
        value.kind = TC_BOOLEAN;
        value.boolean = *r->at == 't';
        r->at += r->end - r->at < (value.boolean ? 4 : 5) ? r->end - r->at : (value.boolean ? 4 : 5);
    } else if (*r->at == 'n') {
        r->at += r->end - r->at < 4 ? r->end - r->at : 4;
    } else {
        // The host ends the arguments with no zero, and a number needs one.
        char digits[64];
        size_t size = 0;
        while (r->at < r->end && size < sizeof digits - 1 && *r->at && strchr("+-.0123456789eE", *r->at))
            digits[size++] = *r->at++;
        digits[size] = 0;
        if (!size) r->at = r->end;
        value.kind = TC_NUMBER;
        value.number = strtod(digits, NULL);
    }
    return value;
}

static const tc_value *parse(const char *data, size_t size) {
    reader r = {data, data + size};
    tc_value *value = (tc_value *)allocate(sizeof *value);
    *value = read_value(&r, 0);
    return value;
}

const tc_value *tc_get(const tc_value *object, const char *name) {
    if (!object || object->kind != TC_OBJECT) return NULL;
    for (size_t i = 0; i < object->size; i++)
        if (object->names[i].size == strlen(name) && !memcmp(object->names[i].data, name, object->names[i].size))
            return &object->values[i];
    return NULL;
}

double tc_number(const tc_call *call, const char *name, double otherwise) {
    const tc_value *value = tc_get(call->arguments, name);
    return value && value->kind == TC_NUMBER ? value->number : otherwise;
}

bool tc_boolean(const tc_call *call, const char *name, bool otherwise) {
    const tc_value *value = tc_get(call->arguments, name);
    return value && value->kind == TC_BOOLEAN ? value->boolean : otherwise;
}

tc_string tc_text_of(const tc_call *call, const char *name) {
    const tc_value *value = tc_get(call->arguments, name);
    tc_string none = {"", 0};
    return value && value->kind == TC_STRING ? value->string : none;
}

// Results, in the layout of the canonical ABI.

typedef struct {
    uint8_t is_some;
    tc_string value;
} option_string;

typedef struct {
    uint8_t tag; // text, blob, link
    tc_string first;
    tc_string second;
    option_string media_type; // of a link
} content;

struct tc_result {
    uint8_t is_error;
    union {
        struct {
            content *parts;
            size_t count;
            option_string structured;
        } output;
        struct {
            uint8_t kind; // invalid-arguments, denied, unavailable, failed, other
            tc_string message;
        } error;
    } of;
};

static tc_result *new_result(void) {
    tc_result *result = (tc_result *)allocate(sizeof *result);
    memset(result, 0, sizeof *result);
    return result;
}

static tc_string format_text(const char *format, va_list values) {
    va_list again;
    va_copy(again, values);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = (char *)allocate((size_t)size + 1);
    vsnprintf(text, (size_t)size + 1, format, values);
    tc_string result = {text, (size_t)size};
    return result;
}

static tc_result *add(tc_result *result, uint8_t tag, tc_string first, tc_string second) {
    size_t count = result->of.output.count++;
    result->of.output.parts = (content *)realloc(result->of.output.parts, (count + 1) * sizeof(content));
    if (!result->of.output.parts) __builtin_trap();
    content *part = &result->of.output.parts[count];
    memset(part, 0, sizeof *part);
    part->tag = tag;
    part->first = first;
    part->second = second;
    return result;
}

static const tc_string NOTHING = {"", 0};

tc_result *tc_text(const char *format, ...) {
    va_list values;
    va_start(values, format);
    tc_string text = format_text(format, values);
    va_end(values);
    return add(new_result(), 0, text, NOTHING);
}

tc_result *tc_text_n(const char *data, size_t size) { return add(new_result(), 0, copy(data, size), NOTHING); }

tc_result *tc_add_text(tc_result *result, const char *data, size_t size) {
    return add(result, 0, copy(data, size), NOTHING);
}

tc_result *tc_add_blob(tc_result *result, const char *media_type, const void *data, size_t size) {
    return add(result, 1, copy(media_type, strlen(media_type)), copy((const char *)data, size));
}

tc_result *tc_add_link(tc_result *result, const char *uri, const char *name) {
    return add(result, 2, copy(uri, strlen(uri)), copy(name, strlen(name)));
}

tc_result *tc_structured(tc_result *result, const char *json, size_t size) {
    result->of.output.structured.is_some = 1;
    result->of.output.structured.value = copy(json, size);
    return result;
}

static tc_result *fail(uint8_t kind, tc_string message) {
    tc_result *result = new_result();
    result->is_error = 1;
    result->of.error.kind = kind;
    result->of.error.message = message;
    return result;
}

#define ERROR_OF_KIND(name, kind)                                                                                      \
    tc_result *name(const char *format, ...) {                                                                         \
        va_list values;                                                                                                \
        va_start(values, format);                                                                                      \
        tc_string message = format_text(format, values);                                                               \
        va_end(values);                                                                                                \
        return fail(kind, message);                                                                                    \
    }
ERROR_OF_KIND(tc_invalid, 0)
ERROR_OF_KIND(tc_denied, 1)
ERROR_OF_KIND(tc_unavailable, 2)
ERROR_OF_KIND(tc_failed, 3)

// Imports.

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
IMPORT("toolcell:tool/log@0.1.0", "write") void host_log(int32_t level, const char *text, size_t size);
IMPORT("toolcell:tool/progress@0.1.0", "report")
void host_progress(int64_t done, int32_t has_total, int64_t total, int32_t has_message, const char *text, size_t size);

void tc_log(tc_level level, const char *format, ...) {
    va_list values;
    va_start(values, format);
    tc_string text = format_text(format, values);
    va_end(values);
    host_log((int32_t)level, text.data, text.size);
}

void tc_progress(uint64_t done, uint64_t total, const char *message) {
    host_progress((int64_t)done, total > 0, (int64_t)total, message != NULL, message, message ? strlen(message) : 0);
}

// Exports.

#define EXPORT(name) __attribute__((export_name(name)))
#define INTERFACE "toolcell:tool/tools@0.1.0#"

EXPORT("cabi_realloc") void *tc_realloc(void *old, size_t old_size, size_t alignment, size_t size) {
    (void)old_size;
    // malloc aligns to 16 bytes, which is enough for every type.
    if (!size) return (void *)alignment;
    void *memory = realloc(old, size);
    if (!memory) __builtin_trap();
    return memory;
}

typedef struct {
    tc_string name;
    option_string title;
    tc_string description;
    tc_string input_schema;
    option_string output_schema;
    uint8_t hints;
    const void *annotations;
    size_t annotation_count;
} definition;

typedef struct {
    const definition *items;
    size_t count;
} definition_list;

static tc_string schema_of(const tc_tool *tool) {
    static const char *const KINDS[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
    buffer b = {0, 0, 0};
    put_text(&b, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (size_t i = 0; i < tool->parameter_count; i++) {
        const tc_parameter *p = &tool->parameters[i];
        if (i) put_text(&b, ",");
        put_json(&b, p->name);
        put_text(&b, ":{\"type\":\"");
        put_text(&b, KINDS[p->kind]);
        put_text(&b, "\"");
        if (p->description) {
            put_text(&b, ",\"description\":");
            put_json(&b, p->description);
        }
        if (p->rules) {
            put_text(&b, ",");
            put_text(&b, p->rules);
        }
        put_text(&b, "}");
    }
    put_text(&b, "},\"required\":[");
    bool is_first = true;
    for (size_t i = 0; i < tool->parameter_count; i++) {
        if (tool->parameters[i].optional) continue;
        if (!is_first) put_text(&b, ",");
        put_json(&b, tool->parameters[i].name);
        is_first = false;
    }
    put_text(&b, "]}");
    tc_string schema = {b.data, b.size};
    return schema;
}

static option_string maybe(const char *text) {
    option_string option = {text != NULL, {text ? text : "", text ? strlen(text) : 0}};
    return option;
}

EXPORT(INTERFACE "definitions") const definition_list *tc_definitions(void) {
    size_t count = 0;
    const tc_tool *tools = tc_tools(&count);
    definition *items = (definition *)allocate(count * sizeof *items);
    memset(items, 0, count * sizeof *items);
    for (size_t i = 0; i < count; i++) {
        const tc_tool *tool = &tools[i];
        items[i].name = copy(tool->name, strlen(tool->name));
        items[i].title = maybe(tool->title);
        items[i].description = copy(tool->description, strlen(tool->description));
        items[i].input_schema = schema_of(tool);
        items[i].output_schema = maybe(tool->output_schema);
        items[i].hints =
            (uint8_t)(tool->read_only | tool->destructive << 1 | tool->idempotent << 2 | tool->open_world << 3);
    }
    definition_list *list = (definition_list *)allocate(sizeof *list);
    list->items = items;
    list->count = count;
    return list;
}

typedef struct {
    tc_string name, json;
} context_entry;

EXPORT(INTERFACE "run")
const tc_result *tc_run(const char *id, size_t id_size, const char *name, size_t name_size, const char *arguments,
                        size_t arguments_size, const context_entry *entries, size_t entry_count) {
    tc_value *context = (tc_value *)allocate(sizeof *context);
    memset(context, 0, sizeof *context);
    context->kind = TC_OBJECT;
    context->size = entry_count;
    tc_value *values = (tc_value *)allocate(entry_count * sizeof *values);
    tc_string *names = (tc_string *)allocate(entry_count * sizeof *names);
    for (size_t i = 0; i < entry_count; i++) {
        names[i] = entries[i].name;
        values[i] = *parse(entries[i].json.data, entries[i].json.size);
    }
    context->values = values;
    context->names = names;
    tc_call call = {copy(id, id_size), parse(arguments, arguments_size), context};
    size_t count = 0;
    const tc_tool *tools = tc_tools(&count);
    for (size_t i = 0; i < count; i++)
        if (strlen(tools[i].name) == name_size && !memcmp(tools[i].name, name, name_size)) return tools[i].run(&call);
    return tc_invalid("this component has no tool `%.*s`", (int)(name_size > 64 ? 64 : name_size), name);
}
