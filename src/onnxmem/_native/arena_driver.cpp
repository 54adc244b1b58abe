#include "arena_driver.hpp"

#include <dlfcn.h>

#include <map>

namespace onnxmem::arena {

namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Driver& driver) {
  return find(library, "cuInit", driver.init) && find(library, "cuGetErrorName", driver.error_name) &&
         find(library, "cuDeviceGet", driver.device) && find(library, "cuDeviceGetAttribute", driver.attribute) &&
         find(library, "cuDeviceTotalMem_v2", driver.total) &&
         find(library, "cuDevicePrimaryCtxRetain", driver.retain_context) &&
         find(library, "cuCtxPushCurrent_v2", driver.push_context) &&
         find(library, "cuCtxPopCurrent_v2", driver.pop_context) &&
         find(library, "cuCtxSynchronize", driver.synchronize) && find(library, "cuMemGetInfo_v2", driver.memory) &&
         find(library, "cuMemAlloc_v2", driver.allocate) && find(library, "cuMemFree_v2", driver.free);
}

// Since CUDA 10.2.
void find_virtual_memory(void* library, Driver& driver) {
  const bool all = find(library, "cuMemGetAllocationGranularity", driver.granularity) &&
                   find(library, "cuMemAddressReserve", driver.reserve) &&
                   find(library, "cuMemAddressFree", driver.unreserve) && find(library, "cuMemCreate", driver.create) &&
                   find(library, "cuMemRelease", driver.release) && find(library, "cuMemMap", driver.map) &&
                   find(library, "cuMemUnmap", driver.unmap) && find(library, "cuMemSetAccess", driver.allow);
  if (!all) driver.allow = nullptr;
}

}  // namespace

std::string Driver::name_of(int error) const {
  const char* name = nullptr;
  return error_name(error, &name) == 0 && name != nullptr ? name : "error " + std::to_string(error);
}

const Driver* load_driver(const std::string& library, std::string& problem) {
  static auto& known = *new std::map<std::string, const Driver*>;  // under the lock of the devices; never unloaded
  const Driver*& loaded = known[library];
  if (loaded != nullptr) return loaded;
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    problem = "there is no CUDA driver here (" + library + " cannot be loaded)";
    return nullptr;
  }
  Driver driver{};
  if (!find_all(handle, driver)) {
    problem = "this CUDA driver is older than 11.0";
    return nullptr;
  }
  if (const int error = driver.init(0)) {
    problem = "the CUDA driver does not start: " + driver.name_of(error);
    return nullptr;
  }
  find_virtual_memory(handle, driver);
  loaded = new Driver(driver);
  return loaded;
}

}  // namespace onnxmem::arena
