#pragma once

#include <cmath>
#include <cstdint>

#include "base/choices.h"
#include "base/formula.h"

namespace hearth::ops {

/// Returns the derivative of the soft cap (0: none), given its result.
HEARTH_FORMULA inline float cap_slope(float capped, float softcap) {
  const float t = softcap > 0 ? capped / softcap : 0.0F;
  return 1 - t * t;
}

/// Divergence of the student's distribution P from the teacher's Q, and its share of a token's loss:
/// (1 - weight) cross_entropy + weight temperature^2 D(Q, P). Both distributions have a class for each token
/// that the teacher lists, and one class for all other tokens together (the tail), unless every token is
/// listed. They are raised to the power 1 / temperature and normalized over these classes.
struct DistillFormula {
  Divergence divergence = Divergence::forward;
  float weight = 0, temperature = 1, beta = 0.5F;

  /// Returns a class's term of the divergence.
  HEARTH_FORMULA float term(float log_p, float log_q) const {
    if (divergence == Divergence::forward) return std::exp(log_q) * (log_q - log_p);
    if (divergence == Divergence::reverse) return std::exp(log_p) * (log_p - log_q);
    const float log_m = log_mixture(log_p, log_q);
    return beta * std::exp(log_q) * (log_q - log_m) + (1 - beta) * std::exp(log_p) * (log_p - log_m);
  }
  /// Returns P times the derivative of the divergence with respect to P, up to a multiple of P, which cancels
  /// in the gradient of a softmax (DistillToken::slope).
  HEARTH_FORMULA float pull(float log_p, float log_q) const {
    if (divergence == Divergence::forward) return -std::exp(log_q);
    const float log_other = divergence == Divergence::reverse ? log_q : log_mixture(log_p, log_q);
    return (divergence == Divergence::reverse ? 1 : 1 - beta) * std::exp(log_p) * (log_p - log_other);
  }

 private:
  HEARTH_FORMULA float log_mixture(float log_p, float log_q) const {
    const float a = log_p + std::log(1 - beta), b = log_q + std::log(beta);
    return (a > b ? a : b) + std::log1p(std::exp(-std::fabs(a - b)));
  }
};

/// Min probability of the teacher's tail: 1 minus the sum of the listed probabilities may round to 0 or less.
inline constexpr float kMinTail = 1e-6F;
/// Logit that replaces those of listed tokens while the logsumexp of the tail is computed.
inline constexpr float kListedLogit = -1e30F;

/// Classes of one token: k listed tokens, and the tail if `has_tail`.
struct DistillClasses {
  const float* logits;  ///< student's logits of the listed tokens
  const float* logps;   ///< teacher's log-probabilities of the listed tokens; without a tail also its logits
  int k;
  float tail;  ///< logsumexp of the student's logits of all other tokens
  bool has_tail;
};

/// Loss of one token and the derivative of its loss with respect to each class's logit.
class DistillToken {
 public:
  /// `threads` share the loops over classes: first(), step(), max(value) and sum(value) as in DistillThread.
  template <typename Threads>
  HEARTH_FORMULA DistillToken(const DistillFormula& formula, const DistillClasses& classes, Threads threads)
      : formula_(formula), classes_(classes) {
    const float none = -3.4e38F;
    float listed = 0;
    float largest = none, largest_q = none;
    for_each(threads, classes.k, [&](int j) {
      listed += std::exp(classes_.logps[j]);
      largest = classes_.logits[j] > largest ? classes_.logits[j] : largest;
      largest_q = classes_.logps[j] > largest_q ? classes_.logps[j] : largest_q;
    });
    const float left = 1 - threads.sum(listed);
    tail_logp_ = std::log(left > kMinTail ? left : kMinTail);
    largest_ = threads.max(largest);
    largest_q_ = threads.max(largest_q);
    if (classes.has_tail) {
      largest_ = classes.tail > largest_ ? classes.tail : largest_;
      largest_q_ = tail_logp_ > largest_q_ ? tail_logp_ : largest_q_;
    }
    normalize(threads);
    float divergence = 0, pull = 0;
    for_each(threads, num_classes(), [&](int j) {
      divergence += formula_.term(log_p(j), log_q(j));
      pull += formula_.pull(log_p(j), log_q(j));
    });
    divergence_ = threads.sum(divergence);
    pull_ = threads.sum(pull);
  }

  /// Returns the logsumexp of all logits of the student.
  HEARTH_FORMULA float lse() const { return lse_; }
  HEARTH_FORMULA float loss(float cross_entropy) const {
    const float t = formula_.temperature;
    return (1 - formula_.weight) * cross_entropy + formula_.weight * t * t * divergence_;
  }
  /// Returns the derivative of the loss with respect to the logit of class j, without the term of the label.
  HEARTH_FORMULA float slope(int j) const {
    const float p = std::exp(log_p(j));
    return (1 - formula_.weight) * std::exp(logit(j) - lse_) +
           formula_.weight * formula_.temperature * (formula_.pull(log_p(j), log_q(j)) - p * pull_);
  }
  /// Returns the derivative of the loss with respect to the logsumexp of the tail; 0 without a tail.
  HEARTH_FORMULA float tail_slope() const { return classes_.has_tail ? slope(classes_.k) : 0; }

 private:
  HEARTH_FORMULA int num_classes() const { return classes_.k + (classes_.has_tail ? 1 : 0); }
  HEARTH_FORMULA float logit(int j) const { return j < classes_.k ? classes_.logits[j] : classes_.tail; }
  HEARTH_FORMULA float logp(int j) const { return j < classes_.k ? classes_.logps[j] : tail_logp_; }
  HEARTH_FORMULA float log_p(int j) const {
    return (logit(j) - largest_) / formula_.temperature - log_sum_p_;
  }
  HEARTH_FORMULA float log_q(int j) const {
    return (logp(j) - largest_q_) / formula_.temperature - log_sum_q_;
  }

  template <typename Threads, typename Body>
  HEARTH_FORMULA static void for_each(Threads threads, int count, Body body) {
    for (int j = threads.first(); j < count; j += threads.step()) body(j);
  }
  template <typename Threads>
  HEARTH_FORMULA void normalize(Threads threads) {
    float sum = 0, sum_p = 0, sum_q = 0;
    for_each(threads, num_classes(), [&](int j) {
      sum += std::exp(logit(j) - largest_);
      sum_p += std::exp((logit(j) - largest_) / formula_.temperature);
      sum_q += std::exp((logp(j) - largest_q_) / formula_.temperature);
    });
    lse_ = largest_ + std::log(threads.sum(sum));
    log_sum_p_ = std::log(threads.sum(sum_p));
    log_sum_q_ = std::log(threads.sum(sum_q));
  }

  DistillFormula formula_;
  DistillClasses classes_;
  float tail_logp_ = 0, largest_ = 0, largest_q_ = 0;
  float lse_ = 0, log_sum_p_ = 0, log_sum_q_ = 0, divergence_ = 0, pull_ = 0;
};

/// Implementation of `threads` for a token that one thread computes.
struct DistillThread {
  HEARTH_FORMULA int first() const { return 0; }
  HEARTH_FORMULA int step() const { return 1; }
  HEARTH_FORMULA float max(float value) const { return value; }
  HEARTH_FORMULA float sum(float value) const { return value; }
};

/// Calls body(DistillToken) for the two classes of a sigmoid: the logits {logit, 0} of the student and
/// {teacher, 0} of the teacher.
template <typename Body>
HEARTH_FORMULA float of_sigmoid(const DistillFormula& formula, float logit, float teacher, Body body) {
  const float logits[] = {logit, 0}, logps[] = {teacher, 0};
  const DistillClasses classes{.logits = logits, .logps = logps, .k = 2, .tail = 0, .has_tail = false};
  return body(DistillToken(formula, classes, DistillThread()));
}

/// A row of logits of student and teacher, [width] each: the logits of one softmax, or of `width` sigmoids.
struct DistillRow {
  const float* logits;
  const float* teacher;
  int width;
  bool sigmoid;

  /// Returns the row's loss with formula.weight 1, summed over sigmoids, to all `threads`.
  template <typename Threads>
  HEARTH_FORMULA float loss(const DistillFormula& formula, Threads threads) const {
    if (!sigmoid) return softmax(formula, threads).loss(0);
    float sum = 0;
    for (int j = threads.first(); j < width; j += threads.step())
      sum += of_sigmoid(formula, logits[j], teacher[j], [](const auto& token) { return token.loss(0); });
    return threads.sum(sum);
  }
  /// Calls write(j, derivative of the loss with respect to logit j) for each logit, in one of the threads.
  template <typename Threads, typename Write>
  HEARTH_FORMULA void slopes(const DistillFormula& formula, Threads threads, Write write) const {
    if (!sigmoid) {
      const DistillToken token = softmax(formula, threads);
      for (int j = threads.first(); j < width; j += threads.step()) write(j, token.slope(j));
      return;
    }
    for (int j = threads.first(); j < width; j += threads.step())
      write(j, of_sigmoid(formula, logits[j], teacher[j], [](const auto& token) { return token.slope(0); }));
  }

 private:
  template <typename Threads>
  HEARTH_FORMULA DistillToken softmax(const DistillFormula& formula, Threads threads) const {
    return DistillToken(
        formula, {.logits = logits, .logps = teacher, .k = width, .tail = 0, .has_tail = false}, threads);
  }
};

}  // namespace hearth::ops
