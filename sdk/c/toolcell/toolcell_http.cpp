// Requests, for a build that compiles C++ only.
extern "C" {
#include "toolcell_http.c"
}
