#include "distributed/nccl/library.h"

#include <cstdlib>

#include "base/error.h"
#include "base/shared_library.h"
#include "distributed/process_group.h"

namespace hearth::distributed {
NcclLibrary::NcclLibrary(const std::string& path) {
  const SharedLibrary library({path});
  if (!library) {
    user_error("cannot open NCCL or RCCL: {}; set HEARTH_NCCL=FILE to the path of the library",
               library.fault());
  }
  const auto find = [&](const char* name, auto*& function) {
    if (!library.find(name, function))
      user_error("{1} has no function {0}; NCCL 2.7 or later is needed", name, path);
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

std::string NcclLibrary::default_path(const std::string& runtime) {
  if (const char* path = std::getenv("HEARTH_NCCL"); path != nullptr && *path != '\0') return path;
  if (runtime == "HIP") return "librccl.so.1";
  if (runtime == "CUDA") return "libnccl.so.2";
  user_error(
      "cannot open NCCL or RCCL: {} GPUs have no such library; set HEARTH_NCCL=FILE to the path of one",
      runtime);
}

void NcclLibrary::check(int result, const char* doing) const {
  if (result == 0) return;
  throw CommError(-1, fmt::format("{} failed: {}", doing, get_error_string(result)));
}

std::string NcclLibrary::version() const {
  int version = 0;
  check(get_version(&version), "reading the version of the library");
  // Versions before 2.9 are encoded as major * 1000 + minor * 100 + patch.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  return fmt::format("{}.{}.{}", major, version / 100 % (version < 10000 ? 10 : 100), version % 100);
}

}  // namespace hearth::distributed
