#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "base/dtype.h"

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

/// One rank's end of a group of `size()` ranks. Every rank calls the same collectives in the same order with
/// the same sizes; each returns when this rank may use its memory again. Arrays are of this process's own
/// memory and do not overlap. Throws CommError when a rank does not come within the deadline. An end belongs
/// to one thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void set_place(const Place& place) = 0;
  /// Whether bytes are moved by the cores that ranks compute with, so that another thread would win nothing.
  virtual bool uses_own_cores() const { return false; }

  virtual void barrier() = 0;
  /// data = the sum over all ranks, by the order of sum.h, the same bits on every rank. What travels is of
  /// dtype `wire`, f32 or bf16, and so are the sums that arrive; they are made in f32.
  virtual void all_reduce(std::span<float> data, DType wire) = 0;
  /// The same, but rank r gets part r of size() equal parts alone: `out` of its own part.
  virtual void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) = 0;
  /// Part r of `out` = rank r's `in`; all of them have one size.
  virtual void all_gather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  /// `data` of every rank = that of rank `root`.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// From one rank to another; the others take no part.
  virtual void send(std::span<const std::byte> data, int to) = 0;
  virtual void receive(std::span<std::byte> data, int from) = 0;
};

}  // namespace hearth::distributed
