#include "data/chosen_images.h"
#include "data/read_check.h"

namespace hearth::data {
namespace {

/// The readable images of a dataset, for DatasetOptions::skip_bad.
class ReadableImages : public ChosenImages {
 public:
  ReadableImages(std::unique_ptr<Dataset> all, const ReadCheck& check)
      : ChosenImages(*all, check.readable), all_(std::move(all)) {
    notes_ = all_->notes();
    notes_.push_back(describe_skipped(check, "images"));
  }

 private:
  std::unique_ptr<Dataset> all_;
};

}  // namespace

std::unique_ptr<Dataset> without_unreadable(std::unique_ptr<Dataset> all, int num_threads) {
  const ReadCheck check = check_reading(all->size(), num_threads, [&](int64_t index) { all->check(index); });
  if (check.faults.empty()) return all;
  return std::make_unique<ReadableImages>(std::move(all), check);
}

}  // namespace hearth::data
