// Tools of Toolcell in C: a table of functions and their parameters becomes a component.
//
// Each call runs in a new instance, so that no memory needs to be freed.
#ifndef TOOLCELL_H
#define TOOLCELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A text in UTF-8. A zero follows it; it can contain others.
typedef struct {
    const char *data;
    size_t size;
} tc_string;

// A JSON value.
typedef enum { TC_NULL, TC_BOOLEAN, TC_NUMBER, TC_INTEGER, TC_STRING, TC_ARRAY, TC_OBJECT } tc_kind;

typedef struct tc_value {
    tc_kind kind; // never TC_INTEGER, which is a kind of parameters
    bool boolean;
    double number;
    tc_string string;
    size_t size;                   // of an array or an object
    const struct tc_value *values; // elements or members
    const tc_string *names;        // of the members
} tc_value;

// Arguments of a call, which match the schema, and what the host says about it.
typedef struct {
    tc_string id;
    const tc_value *arguments;
    const tc_value *context; // values of the session, by name
} tc_call;

// Returns an argument or a member of an object, or NULL.
const tc_value *tc_get(const tc_value *object, const char *name);
double tc_number(const tc_call *call, const char *name, double otherwise);
bool tc_boolean(const tc_call *call, const char *name, bool otherwise);
// Returns a text; an empty one if it was left out.
tc_string tc_text_of(const tc_call *call, const char *name);

// The result of a call.
typedef struct tc_result tc_result;

// A text, formatted as by printf.
tc_result *tc_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
tc_result *tc_text_n(const char *data, size_t size);
// Further parts.
tc_result *tc_add_text(tc_result *result, const char *data, size_t size);
tc_result *tc_add_blob(tc_result *result, const char *media_type, const void *data, size_t size);
tc_result *tc_add_link(tc_result *result, const char *uri, const char *name);
// A structured value in JSON.
tc_result *tc_structured(tc_result *result, const char *json, size_t size);

// Errors, with a message for the model. The kinds differ in what may help.
tc_result *tc_invalid(const char *format, ...) __attribute__((format(printf, 1, 2)));     // other arguments
tc_result *tc_denied(const char *format, ...) __attribute__((format(printf, 1, 2)));      // another policy
tc_result *tc_unavailable(const char *format, ...) __attribute__((format(printf, 1, 2))); // a later call
tc_result *tc_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

// A parameter of a tool.
typedef struct {
    const char *name;
    tc_kind kind;
    const char *description;
    bool optional;
    const char *rules; // further members of its schema, such as "\"minimum\":1"
} tc_parameter;

// A tool.
typedef struct {
    const char *name;        // 1 to 64 letters, digits, _ and -, the first one a letter
    const char *description; // purpose and when to use it, for the model
    const tc_parameter *parameters;
    size_t parameter_count;
    tc_result *(*run)(const tc_call *call);
    // Claims about effects. They grant nothing.
    bool read_only, destructive, idempotent, open_world;
    const char *title;         // or NULL
    const char *output_schema; // JSON Schema of the structured value, or NULL
} tc_tool;

// The parameters of a tool, as initializers of its table.
#define TC_PARAMETERS(list) .parameters = list, .parameter_count = sizeof(list) / sizeof(*(list))

// The tools of the component: `TC_TOOLS(table)`, once.
#ifdef __cplusplus
#define TC_EXTERN extern "C"
#else
#define TC_EXTERN
#endif
#define TC_TOOLS(table)                                                                                                \
    TC_EXTERN const tc_tool *tc_tools(size_t *count) {                                                                 \
        *count = sizeof(table) / sizeof(*(table));                                                                     \
        return table;                                                                                                  \
    }
const tc_tool *tc_tools(size_t *count);

// Messages and progress for the user. The model does not read them.
typedef enum { TC_TRACE, TC_DEBUG, TC_INFO, TC_WARN, TC_ERROR } tc_level;
void tc_log(tc_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tc_progress(uint64_t done, uint64_t total, const char *message); // total 0: unknown; message or NULL

#ifdef __cplusplus
}
#endif
#endif
