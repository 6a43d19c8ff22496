// The C part of the SDK, for a build that compiles C++ only.
extern "C" {
#include "toolcell.c"
}
