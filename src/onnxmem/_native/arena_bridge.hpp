// The way into a stock ONNX Runtime: its allocator interface, filled in by the functions of arena_run.hpp.
#pragma once

#include <string>

namespace onnxmem::arena {

class Device;

// Has ONNX Runtime loaded this library and handed over its table of functions?
bool connected();

// Register the allocator in the process-wide environment, for sessions that ask for the environment's; counted, so
// that the last `withdraw` takes it out again. Sessions that were made in between keep it: the allocator is never
// destroyed. Both return what went wrong, or nothing.
std::string enlist();
std::string withdraw();
// The same with the allocator of a device.
std::string enlist_device(Device& device);
std::string withdraw_device(Device& device);

}  // namespace onnxmem::arena
