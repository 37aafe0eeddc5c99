#include "distributed/nccl/library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "backend/gpu/device.h"
#include "base/error.h"
#include "distributed/process_group.h"

namespace hearth::distributed {
namespace {

template <typename Function>
void find(void* library, const std::string& path, const char* name, Function& function) {
  void* const found = dlsym(library, name);
  if (found == nullptr) user_error("expected {} in {}, got a library without it", name, path);
  function = reinterpret_cast<Function>(found);
}

}  // namespace

NcclLibrary::NcclLibrary(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    user_error("expected a library of collectives, got none: {}; HEARTH_NCCL=FILE says where it is",
               dlerror());
  const auto find = [&](const char* name, auto& function) {
    distributed::find(library, path, name, function);
  };
  find("ncclGetVersion", get_version);
  find("ncclGetErrorString", get_error_string);
  find("ncclGetUniqueId", get_unique_id);
  find("ncclCommInitRank", comm_init_rank);
  find("ncclCommDestroy", comm_destroy);
  find("ncclCommAbort", comm_abort);
  find("ncclAllReduce", all_reduce);
  find("ncclReduce", reduce);
  find("ncclBroadcast", broadcast);
  find("ncclReduceScatter", reduce_scatter);
  find("ncclAllGather", all_gather);
  find("ncclSend", send);
  find("ncclRecv", receive);
}

std::string NcclLibrary::usual_path() {
  if (const char* path = std::getenv("HEARTH_NCCL"); path != nullptr && *path != '\0') return path;
  const std::string runtime = gpu::runtime().name;
  if (runtime == "HIP") return "librccl.so.1";
  if (runtime == "CUDA") return "libnccl.so.2";
  user_error("expected a library of collectives, got none: {} GPUs have none of their own", runtime);
}

void NcclLibrary::check(int result, const char* doing) const {
  if (result == 0) return;
  throw CommError(-1, fmt::format("{} failed: {}", doing, get_error_string(result)));
}

std::string NcclLibrary::version() const {
  int version = 0;
  check(get_version(&version), "asking for the library's version");
  // Before 2.9 a thousand was the major version.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  return fmt::format("{}.{}.{}", major, version / 100 % (version < 10000 ? 10 : 100), version % 100);
}

}  // namespace hearth::distributed
