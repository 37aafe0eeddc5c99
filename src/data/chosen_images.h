#pragma once

#include <utility>

#include "data/dataset.h"

namespace hearth::data {

/// A dataset that contains the images of another dataset with the given indices. The other dataset must
/// outlive it.
class ChosenImages : public Dataset {
 public:
  ChosenImages(const Dataset& all, std::vector<int64_t> chosen) : all_(all), chosen_(std::move(chosen)) {
    class_names_ = all.class_names();
    image_size_ = all.image_size();
    channels_ = all.channels();
  }
  int64_t size() const override { return std::ssize(chosen_); }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    all_.read(place(index), pixels, label);
  }
  int32_t check(int64_t index) const override { return all_.check(place(index)); }
  int32_t label(int64_t index) const override { return all_.label(place(index)); }
  uint64_t content(int64_t index) const override { return all_.content(place(index)); }
  std::string where(int64_t index) const override { return all_.where(place(index)); }

 private:
  int64_t place(int64_t index) const { return chosen_[static_cast<size_t>(index)]; }

  const Dataset& all_;
  std::vector<int64_t> chosen_;
};

}  // namespace hearth::data
