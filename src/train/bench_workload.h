#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "train/engine.h"

namespace hearth::train {

/// Work that is compared with other programs, on random data.
struct BenchCase {
  std::string_view name;
  /// One of model_list(), trained by SGD with momentum on ten classes of pictures; or llama15m, llama110m,
  /// trained by AdamW (or, where there is a prompt, asked for an answer).
  std::string_view model;
  DType precision = DType::f32;
  int64_t batch = 1;      ///< pictures, or rows of tokens
  int64_t length = 0;     ///< side of a picture, or tokens of a row
  int64_t channels = 0;   ///< of a picture
  int64_t rank = 0;       ///< of a LoRA on every linear layer; 0: all weights train
  int64_t prompt = 0;     ///< tokens before `length` new ones; 0: training
  int64_t arena_mib = 0;  ///< recomputation holds the arena to it; 0: no limit
};

/// What a case repeats, ready to run.
class Workload {
 public:
  virtual ~Workload() = default;
  /// Runs the work once: a training step, or a whole answer.
  virtual void run(int64_t index) = 0;
  /// Of one run; 0 where memory and not arithmetic is the limit.
  virtual double flops() const = 0;
  /// A table of a training step's seconds by op and shape, the longest first.
  virtual std::string profile() { return ""; }
};

/// What a case of training compiles; UserError for one of answers.
EngineOptions engine_options(const BenchCase& bench, int num_threads);

std::unique_ptr<Workload> open_workload(const BenchCase& bench, int num_threads);

}  // namespace hearth::train
