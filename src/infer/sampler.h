#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::infer {

/// How the next token is chosen from logits; the order and the meaning of the steps are those of
/// transformers' generate().
struct SamplerOptions {
  double temperature = 0;  ///< logits are divided by it; 0: the likeliest token, whatever the rest says
  int64_t top_k = 0;       ///< only so many likeliest tokens; 0: all
  double top_p = 1;        ///< only the likeliest that together reach it (arXiv 1904.09751)
  double repetition_penalty = 1;  ///< logits of tokens that were there shrink by it (arXiv 1909.05858)
  uint64_t seed = 0;
};

/// Chooses tokens one after the other; draw number i depends on (seed, i) alone.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options) {}
  /// The next token by the logits of all tokens, after `so_far`. Of equal logits the lowest id comes first.
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
