// The few functions of the CUDA driver that are needed here, looked up when somebody asks for a device: neither
// building nor installing nor importing needs anything of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace onnxmem::arena {

// As in cuda.h, whose declarations never change their meaning: a new one gets a new name.
struct MemoryLocation {
  int type, id;
};
struct MemoryKind {
  int type, handles;
  MemoryLocation location;
  void* windows_only;
  unsigned char flags[8];
};
struct MemoryAccess {
  MemoryLocation location;
  int flags;
};

struct Driver {
  using Address = unsigned long long;
  using Handle = unsigned long long;

  int (*init)(unsigned);
  int (*error_name)(int, const char**);
  int (*device)(int*, int);
  int (*attribute)(int*, int, int);
  int (*total)(std::size_t*, int);
  int (*retain_context)(void**, int);
  int (*push_context)(void*);
  int (*pop_context)(void**);
  int (*synchronize)();
  int (*memory)(std::size_t*, std::size_t*);
  int (*allocate)(Address*, std::size_t);
  int (*free)(Address);
  // Virtual memory; all of it or nothing is there.
  int (*granularity)(std::size_t*, const MemoryKind*, int);
  int (*reserve)(Address*, std::size_t, std::size_t, Address, unsigned long long);
  int (*unreserve)(Address, std::size_t);
  int (*create)(Handle*, std::size_t, const MemoryKind*, unsigned long long);
  int (*release)(Handle);
  int (*map)(Address, std::size_t, std::size_t, Handle, unsigned long long);
  int (*unmap)(Address, std::size_t);
  int (*allow)(Address, std::size_t, const MemoryAccess*, std::size_t);

  bool maps() const { return allow != nullptr; }
  std::string name_of(int error) const;
};

// A driver, loaded once per process; null and what is missing, if it is not there.
const Driver* load_driver(const std::string& library, std::string& problem);

}  // namespace onnxmem::arena
