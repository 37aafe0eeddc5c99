#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace hearth::distributed {

/// The part of NCCL's interface (2.7 or later) that Hearth calls, which is RCCL's too: declared here, so that
/// one program works with the library and without it. Results are 0 or an error.
struct NcclId {
  std::array<char, 128> bytes;
};
struct NcclComm;
enum class NcclType : int { u8 = 1, f32 = 7, bf16 = 9 };
enum class NcclOperation : int { sum = 0 };

/// A vendor's library of collectives, loaded; it stays until the process ends. Arrays lie on the GPU that a
/// communicator was made for, and streams are what gpu::Stream::handle() gives.
class NcclLibrary {
 public:
  /// UserError where there is none at `path`, or what is there lacks a function.
  explicit NcclLibrary(const std::string& path);

  /// HEARTH_NCCL; else librccl.so.1 of the runtime "HIP" or libnccl.so.2 of "CUDA". UserError where that
  /// leaves none: emulated GPUs have none of their own.
  static std::string usual_path(const std::string& runtime);
  /// Throws CommError with the library's words for a result that is none of success.
  void check(int result, const char* doing) const;
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
