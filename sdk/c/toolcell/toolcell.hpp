// Tools of Toolcell in C++: lambdas with a description and parameters become a component.
#ifndef TOOLCELL_HPP
#define TOOLCELL_HPP

#include "toolcell.h"

#include <string>
#include <string_view>
#include <utility>

namespace toolcell {

// The result of a call: a text, or several parts. Errors are made by `invalid` and the like.
class result {
  public:
    result(std::string_view text) : made(tc_text_n(text.data(), text.size())) {}
    result(const std::string &text) : result(std::string_view(text)) {}
    result(const char *text) : result(std::string_view(text)) {}
    explicit result(tc_result *made) : made(made) {}

    result &&text(std::string_view text) && {
        tc_add_text(made, text.data(), text.size());
        return std::move(*this);
    }
    result &&blob(const std::string &media_type, std::string_view data) && {
        tc_add_blob(made, media_type.c_str(), data.data(), data.size());
        return std::move(*this);
    }
    result &&link(const std::string &uri, const std::string &name) && {
        tc_add_link(made, uri.c_str(), name.c_str());
        return std::move(*this);
    }
    // A structured value in JSON.
    result &&structured(std::string_view json) && {
        tc_structured(made, json.data(), json.size());
        return std::move(*this);
    }
    tc_result *release() { return made; }

  private:
    tc_result *made;
};

inline result invalid(const std::string &message) { return result(tc_invalid("%s", message.c_str())); }
inline result denied(const std::string &message) { return result(tc_denied("%s", message.c_str())); }
inline result unavailable(const std::string &message) { return result(tc_unavailable("%s", message.c_str())); }
inline result failed(const std::string &message) { return result(tc_failed("%s", message.c_str())); }

// Arguments of a call, which match the schema.
class call {
  public:
    explicit call(const tc_call *raw) : raw(raw) {}
    double number(const char *name, double otherwise = 0) const { return tc_number(raw, name, otherwise); }
    bool boolean(const char *name, bool otherwise = false) const { return tc_boolean(raw, name, otherwise); }
    std::string_view text(const char *name) const {
        tc_string text = tc_text_of(raw, name);
        return {text.data, text.size};
    }
    const tc_value *value(const char *name) const { return tc_get(raw->arguments, name); }

  private:
    const tc_call *raw;
};

inline void log(const std::string &message, tc_level level = TC_INFO) { tc_log(level, "%s", message.c_str()); }

// The function of a tool, for its entry in the table.
template <result (*function)(const call &)> tc_result *run(const tc_call *raw) { return function(call(raw)).release(); }

} // namespace toolcell
#endif
