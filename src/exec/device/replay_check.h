#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "exec/places.h"
#include "exec/program.h"

namespace hearth::exec {

/// Compares runs of one program from the same weights, states and inputs, bit for bit. In between, what the
/// program changes is kept on the host: the GPU's part in the image of the weights, which is out of date
/// while programs run. The GPU is idle whenever a function but meet() is called.
class ReplayCheck {
 public:
  /// `addresses`: of each value of the program.
  ReplayCheck(const Program& program, const Places& places, std::span<std::byte* const> addresses);

  /// Host memory that it takes.
  int64_t needed_bytes() const;
  /// Keeps what the program will change, and clears its arena.
  void save();
  /// Makes everything as it was after save().
  void put_back();
  /// Keeps what a run has come to.
  void keep_results();
  /// What is not as it was then, as the end of a sentence; empty where nothing is.
  std::string difference();
  /// In place of a collective: the first run makes it, and later ones are given its results.
  void meet(const Step& step, const ir::KernelArgs& args) noexcept;

 private:
  /// A weight, state or output.
  struct Result {
    std::string name;
    std::byte* at = nullptr;
    int64_t num_bytes = 0;
    bool on_gpu = false;
    bool is_kept = false;  ///< a run begins with what the one before it left
    std::byte* saved = nullptr;
    uint64_t hash = 0;
  };
  struct Collective {
    bool is_made = false;
    uint64_t sent = 0;  ///< hash of its inputs
    std::vector<std::vector<std::byte>> received;
  };

  void add(ir::ValueId id, bool is_kept);
  std::byte* image_of(const std::byte* at) const;
  void clear_arena();
  uint64_t hash_of(const Result& result);
  uint64_t hash_of(const Step& step, const ir::KernelArgs& args) const;

  const Program& program_;
  const Places& places_;
  std::span<std::byte* const> addresses_;
  gpu::Stream& stream_;
  std::vector<Result> results_;
  Region saved_on_host_;
  int64_t host_bytes_ = 0;        ///< of results that lie there
  int64_t collective_bytes_ = 0;  ///< that collectives hand out
  std::vector<std::byte> piece_;
  std::map<const Step*, Collective> collectives_;
  std::string other_sent_;  ///< the first collective that was given something else
};

}  // namespace hearth::exec
