#pragma once

#include "data/captions/latents.h"

namespace hearth::tasks {

/// Part of another source: `count` images, starting at index `first`. The source must outlive this object.
class PartOfLatents : public data::LatentSource {
 public:
  PartOfLatents(const data::LatentSource& source, int64_t first, int64_t count)
      : source_(source), first_(first), count_(count) {}
  int64_t size() const override { return count_; }
  int64_t channels() const override { return source_.channels(); }
  Extent extent(int64_t index) const override { return source_.extent(source_index(index)); }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override {
    source_.read(source_index(index), key, latents);
  }
  double weight(int64_t index) const override { return source_.weight(source_index(index)); }
  int32_t label(int64_t index) const override { return source_.label(source_index(index)); }
  void text(int64_t index, std::span<float> text, std::span<float> pooled) const override {
    source_.text(index < 0 ? index : source_index(index), text, pooled);
  }

 private:
  int64_t source_index(int64_t index) const { return first_ + index; }

  const data::LatentSource& source_;
  int64_t first_, count_;
};

/// Images of one source, followed by those of `prior`, whose losses are multiplied by `weight`. For prior
/// preservation (Ruiz et al. 2022, arXiv 2208.12242), which trains on images of a class together with images
/// of the subject.
class JoinedLatents : public data::LatentSource {
 public:
  JoinedLatents(const data::LatentSource& images, const data::LatentSource& prior, double weight)
      : images_(images), prior_(prior), weight_(weight) {}
  int64_t size() const override { return images_.size() + prior_.size(); }
  int64_t channels() const override { return images_.channels(); }
  Extent extent(int64_t index) const override {
    return is_prior(index) ? prior_.extent(index - images_.size()) : images_.extent(index);
  }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override {
    is_prior(index) ? prior_.read(index - images_.size(), key, latents) : images_.read(index, key, latents);
  }
  double weight(int64_t index) const override { return is_prior(index) ? weight_ : 1; }
  void text(int64_t index, std::span<float> text, std::span<float> pooled) const override {
    is_prior(index) ? prior_.text(index - images_.size(), text, pooled) : images_.text(index, text, pooled);
  }

 private:
  bool is_prior(int64_t index) const { return index >= images_.size(); }

  const data::LatentSource& images_;
  const data::LatentSource& prior_;
  double weight_;
};

}  // namespace hearth::tasks
