// What tests tell the driver that stands in for CUDA's, beside the driver's own functions: see arena_stand_in.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

extern "C" {
// Work that a kernel would do: write these bytes, or see that they are all of this value.
void stand_in_queue(int stream, std::uintptr_t address, std::size_t bytes, int value, int writes);
void stand_in_wait(int stream);        // until all work of a stream is done; -1: of all
unsigned long long stand_in_faults();  // since it was asked last
std::size_t stand_in_used();           // device memory, in bytes
void stand_in_total(std::size_t bytes);
}
