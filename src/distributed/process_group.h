#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/function_ref.h"

namespace hearth::gpu {
class Stream;
}

/// What ranks say to each other. The folder lies below ops/, whose kernels of collectives call it.
namespace hearth::distributed {

/// A collective that did not come to its end: which rank is missing, in what, and how long was waited.
class CommError : public std::runtime_error {
 public:
  CommError(int rank, const std::string& what) : std::runtime_error(what), rank_(rank) {}
  /// "rank 1 stopped in all_reduce 3 of step 412, rank 0 waited 5.0 s"
  static CommError missing(int rank, const std::string& whereabouts, int waiting, double seconds);
  /// The one that is missing.
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// What the next collectives belong to, for messages and for who watches: "all_reduce 3 of step 412".
struct Place {
  int64_t step = 0;
  int64_t index = 0;
};
std::string to_string(const char* collective, const Place& place);

enum class Capability : uint8_t {
  device_memory,  ///< collectives on the memory of the ranks' devices, not on the host's alone
  own_cores,      ///< bytes are moved by the cores that ranks compute with: another thread would win nothing
};

/// One rank's end of a group of `size()` ranks. Every rank calls the same collectives in the same order with
/// the same sizes; arrays do not overlap. An end belongs to one thread at a time.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool has(Capability capability) const = 0;
  virtual void set_place(const Place& place) = 0;
  /// Ranks may compute so long between collectives: beyond the deadline they are waited for so much longer.
  virtual void allow(double seconds) { allowed_seconds_ = seconds; }

  // Of this process's own memory. Each returns when this rank may use its memory again, and throws CommError
  // when a rank does not come within the deadline.
  virtual void barrier() = 0;
  /// data = the sum over all ranks, by the order of sum.h, the same bits on every rank. What travels is of
  /// dtype `wire`, f32 or bf16, and so are the sums that arrive; they are made in f32.
  virtual void all_reduce(std::span<float> data, DType wire) = 0;
  /// The same in f32 for rank `root` alone; what the others' data then are is undefined.
  virtual void reduce(std::span<float> data, int root);
  /// The same as all_reduce, but rank r gets part r of size() equal parts alone: `out` of its own part.
  virtual void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) = 0;
  /// Part r of `out` = rank r's `in`; all of them have one size.
  virtual void all_gather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  /// `data` of every rank = that of rank `root`, which are only read.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// From one rank to another; the others take no part. A send may wait until it is received.
  virtual void send(std::span<const std::byte> data, int to) = 0;
  virtual void receive(std::span<std::byte> data, int from) = 0;

  // The same with Capability::device_memory for arrays of `count` numbers, f32 or bf16, or of bytes on this
  // rank's device. Each is put into the stream; the vendor's library chose the order of its sums. Throws
  // CommError where the library refuses; InternalError without the capability.
  virtual void all_reduce(void* data, int64_t count, DType dtype, gpu::Stream& stream);
  virtual void reduce(void* data, int64_t count, DType dtype, int root, gpu::Stream& stream);
  /// `count` numbers for each rank.
  virtual void reduce_scatter(const void* in, void* out, int64_t count, DType dtype, gpu::Stream& stream);
  /// `num_bytes` of each rank.
  virtual void all_gather(const void* in, void* out, int64_t num_bytes, gpu::Stream& stream);
  virtual void broadcast(void* data, int64_t num_bytes, int root, gpu::Stream& stream);
  virtual void send(const void* data, int64_t num_bytes, int to, gpu::Stream& stream);
  virtual void receive(void* data, int64_t num_bytes, int from, gpu::Stream& stream);

  // For the kernels of a step, which must not throw.
  /// The collectives that follow are of this step, numbered anew.
  void start_step(int64_t step) { place_ = {.step = step, .index = 0}; }
  /// Makes the step's next collective, unless one has failed: then memory stays as it is. What it throws is
  /// kept for check().
  void in_step(FunctionRef<void()> collective) noexcept;
  /// Has `collective` done to all pieces of the host's memory as one array.
  void in_step(std::span<const std::span<float>> pieces,
               FunctionRef<void(std::span<float>)> collective) noexcept;
  /// Throws what a collective of a step failed with, CommError as a rule; while no kernel is at work.
  void check() const;
  /// That collectives of steps took so far.
  double seconds() const { return seconds_; }

 protected:
  double allowed_seconds() const { return allowed_seconds_; }

 private:
  double allowed_seconds_ = 0;
  Place place_;
  std::vector<float> joined_;
  std::exception_ptr error_;
  double seconds_ = 0;
};

}  // namespace hearth::distributed
