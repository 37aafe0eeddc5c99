#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace hearth::distributed {

/// Declarations of the functions of NCCL (2.7 or later) and RCCL that Hearth calls, so that the program
/// builds and runs without the library. Results are 0 or an error code.
struct NcclId {
  std::array<char, 128> bytes;
};
struct NcclComm;
enum class NcclType : int { u8 = 1, f32 = 7, bf16 = 9 };
enum class NcclOperation : int { sum = 0 };

/// A vendor's library for collectives, which stays loaded until the process ends. Arrays must be on the GPU
/// for which the communicator was created. Stream arguments are gpu::Stream::handle().
class NcclLibrary {
 public:
  /// Loads the library; throws UserError if it is missing at `path` or lacks a function.
  explicit NcclLibrary(const std::string& path);

  /// Returns the path to load: HEARTH_NCCL, or librccl.so.1 for the runtime "HIP", libnccl.so.2 for "CUDA".
  /// Throws UserError for emulated GPUs without HEARTH_NCCL.
  static std::string default_path(const std::string& runtime);
  /// Throws CommError with the library's error text and `doing` (the failed action) unless result is 0.
  void check(int result, const char* doing) const;
  /// Returns the library's version, such as "2.27.3".
  std::string version() const;

  int (*get_version)(int* version);
  const char* (*get_error_string)(int result);
  int (*get_unique_id)(NcclId* id);
  int (*comm_init_rank)(NcclComm** comm, int num_ranks, NcclId id, int rank);
  int (*comm_destroy)(NcclComm* comm);
  int (*comm_abort)(NcclComm* comm);
  int (*all_reduce)(const void* from, void* to, size_t count, NcclType type, NcclOperation operation,
                    NcclComm* comm, void* stream);
  int (*reduce)(const void* from, void* to, size_t count, NcclType type, NcclOperation operation, int root,
                NcclComm* comm, void* stream);
  int (*broadcast)(const void* from, void* to, size_t count, NcclType type, int root, NcclComm* comm,
                   void* stream);
  int (*reduce_scatter)(const void* from, void* to, size_t to_count, NcclType type, NcclOperation operation,
                        NcclComm* comm, void* stream);
  int (*all_gather)(const void* from, void* to, size_t from_count, NcclType type, NcclComm* comm,
                    void* stream);
  int (*send)(const void* from, size_t count, NcclType type, int to, NcclComm* comm, void* stream);
  int (*receive)(void* to, size_t count, NcclType type, int from, NcclComm* comm, void* stream);
};

}  // namespace hearth::distributed
