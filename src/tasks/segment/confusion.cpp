#include "tasks/segment/confusion.h"

namespace hearth::tasks {

Confusion::Confusion(int64_t num_classes)
    : num_classes_(num_classes), counts_(static_cast<size_t>(num_classes * num_classes)) {}

int64_t Confusion::num_true(int64_t label) const {
  int64_t sum = 0;
  for (int64_t i = 0; i < num_classes_; ++i) sum += at(label, i);
  return sum;
}

int64_t Confusion::num_predicted(int64_t label) const {
  int64_t sum = 0;
  for (int64_t i = 0; i < num_classes_; ++i) sum += at(i, label);
  return sum;
}

std::vector<double> Confusion::iou() const {
  std::vector<double> made;
  for (int64_t i = 0; i < num_classes_; ++i) {
    const int64_t both = at(i, i), any = num_true(i) + num_predicted(i) - both;
    made.push_back(any == 0 ? -1 : static_cast<double>(both) / static_cast<double>(any));
  }
  return made;
}

std::vector<double> Confusion::accuracy() const {
  std::vector<double> made;
  for (int64_t i = 0; i < num_classes_; ++i) {
    const int64_t all = num_true(i);
    made.push_back(all == 0 ? -1 : static_cast<double>(at(i, i)) / static_cast<double>(all));
  }
  return made;
}

double Confusion::pixel_accuracy() const {
  int64_t right = 0, all = 0;
  for (int64_t i = 0; i < num_classes_; ++i) {
    right += at(i, i);
    all += num_true(i);
  }
  return all == 0 ? 0 : static_cast<double>(right) / static_cast<double>(all);
}

double Confusion::mean(const std::vector<double>& per_class) {
  double sum = 0;
  int64_t count = 0;
  for (const double value : per_class) {
    if (value < 0) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace hearth::tasks
