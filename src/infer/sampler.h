#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace hearth::infer {

/// Sampling parameters. They have the same meaning and are applied in the same order as in transformers'
/// generate(); the presence and frequency penalties and logit_bias are those of OpenAI's API, applied before
/// the temperature.
struct SamplerOptions {
  double temperature = 0;  ///< divisor of the logits; 0: greedy (top_k and top_p are ignored)
  int64_t top_k = 0;       ///< number of most likely tokens to sample from; 0: all
  double top_p = 1;        ///< nucleus sampling: min total probability of the kept tokens (arXiv 1904.09751)
  double min_p = 0;        ///< min probability of the kept tokens, relative to that of the most likely token
  /// Penalty for tokens that are in the context already: their positive logits are divided by it, negative
  /// ones multiplied (arXiv 1909.05858).
  double repetition_penalty = 1;
  double presence_penalty = 0;   ///< subtracted from the logits of tokens that this sampler has returned
  double frequency_penalty = 0;  ///< subtracted once for each time that the sampler has returned the token
  std::vector<std::pair<int32_t, double>> logit_bias;  ///< ids and the values added to their logits
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
  int32_t choose();
  void penalize(std::span<const int32_t> so_far);
  void sort_all();
  int32_t draw();

  SamplerOptions options_;
  uint64_t num_draws_ = 0;
  std::map<int32_t, int64_t> counts_;  ///< number of times that each token was returned
  std::vector<Candidate> candidates_, sorted_;
  std::vector<double> shares_;
};

}  // namespace hearth::infer
