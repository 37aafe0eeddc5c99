#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backend/gpu/device.h"
#include "base/dtype.h"
#include "distributed/nccl_library.h"
#include "distributed/transport.h"

namespace hearth::distributed {

/// A rank's end of a group of GPUs that goes by NCCL or RCCL. Each call puts a collective on the GPU's
/// memory into a stream; every rank calls the same ones in the same order, and the library decides in which
/// order it adds. Arrays of one call are the same or do not overlap. Throws CommError where the library
/// refuses.
class NcclTeam {
 public:
  /// Returns when all ranks have called it with the id that one of them made, for the GPU that the calling
  /// thread used last.
  NcclTeam(std::shared_ptr<const NcclLibrary> library, const NcclId& id, int rank, int size);
  /// Waits for the other ranks' ends. While an exception unwinds it leaves everything as it is, for the
  /// others do not end.
  ~NcclTeam();
  NcclTeam(const NcclTeam&) = delete;
  NcclTeam& operator=(const NcclTeam&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// data = its sum over all ranks, f32 or bf16.
  void all_reduce(void* data, int64_t count, DType dtype, gpu::Stream& stream);
  /// The same for rank `root` alone.
  void reduce(float* data, int64_t count, int root, gpu::Stream& stream);
  void broadcast(void* data, int64_t num_bytes, int root, gpu::Stream& stream);
  /// Rank r gets part r of the sums, of `count` numbers.
  void reduce_scatter(const void* in, void* out, int64_t count, DType dtype, gpu::Stream& stream);
  /// Part r of `out` = rank r's `in`, of `num_bytes`.
  void all_gather(const void* in, void* out, int64_t num_bytes, gpu::Stream& stream);
  void send(const void* data, int64_t num_bytes, int to, gpu::Stream& stream);
  void receive(void* data, int64_t num_bytes, int from, gpu::Stream& stream);

  /// Ends what is in streams; from any thread. It is of no use from then on. The library may wait until every
  /// rank has called it.
  void abort();

 private:
  NcclComm* comm() const;

  std::shared_ptr<const NcclLibrary> library_;
  std::atomic<NcclComm*> comm_ = nullptr;
  int rank_;
  int size_;
};

struct OpenedNccl {
  std::shared_ptr<NcclTeam> team;  ///< null where there is a fault
  std::string version;             ///< "2.27.3"
  std::string fault;               ///< a sentence, the same on every rank
};
/// Loads a library on every rank of `host`, makes a group of their GPUs, and lets it sum and copy known
/// numbers, small arrays and large ones. Where any of that fails on any rank, or takes longer than the
/// deadline, no rank has a team, and what was under way is aborted. Every rank calls it, with the number of
/// its GPU among gpu::list_devices().
OpenedNccl open_nccl(Transport& host, int gpu, double deadline_seconds = 30);

}  // namespace hearth::distributed
