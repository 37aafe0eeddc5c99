#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::infer {

/// Sampling parameters. They have the same meaning and are applied in the same order as in transformers'
/// generate().
struct SamplerOptions {
  double temperature = 0;  ///< divisor of the logits; 0: greedy (top_k and top_p are ignored)
  int64_t top_k = 0;       ///< number of most likely tokens to sample from; 0: all
  double top_p = 1;        ///< nucleus sampling: min total probability of the kept tokens (arXiv 1904.09751)
  /// Penalty for tokens that are in the context already: their positive logits are divided by it, negative
  /// ones multiplied (arXiv 1909.05858).
  double repetition_penalty = 1;
  uint64_t seed = 0;
};

/// Samples tokens one by one. Sample number i depends only on (seed, i) and the logits.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options) {}
  /// Returns the next token. `logits`: [vocab]; `so_far`: tokens of the context, for the repetition penalty.
  /// Of equal logits the lowest id is first.
  int32_t next(std::span<const float> logits, std::span<const int32_t> so_far);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  void penalize(std::span<const int32_t> so_far);
  int32_t draw();

  SamplerOptions options_;
  uint64_t num_draws_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<double> shares_;
};

}  // namespace hearth::infer
