#include "tasks/data_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "tasks/classify/tensors_dataset.h"
#include "tasks/data_options.h"

namespace hearth::tasks {
namespace {

/// Groups faults that differ only in numbers and file names. Returns the first fault of each group, with the
/// number of similar ones.
std::vector<std::string> grouped(const std::vector<std::string>& faults) {
  std::vector<std::pair<std::string, int64_t>> groups;
  std::map<std::string, size_t> group_of;
  for (const std::string& fault : faults) {
    std::string kind = fault.substr(std::min(fault.find(": "), fault.size()));
    std::erase_if(kind, [](unsigned char c) { return std::isdigit(c) != 0; });
    const auto [group, is_new] = group_of.try_emplace(kind, groups.size());
    if (is_new) groups.emplace_back(fault, 0);
    ++groups[group->second].second;
  }
  std::vector<std::string> lines;
  for (const auto& [fault, count] : groups)
    lines.push_back(count == 1 ? fault : fmt::format("{} (and {} more like it)", fault, count - 1));
  return lines;
}

}  // namespace

void DataReport::line(const std::string& text) const { print(printable(text) + "\n"); }

void DataReport::notes(const std::vector<std::string>& notes) const {
  for (const std::string& note : notes) line("  note: " + note);
}

void DataReport::refuse(const std::vector<std::string>& faults, int64_t num_images, const char* split) const {
  for (const std::string& fault : grouped(faults)) line("  bad: " + fault);
  if (!faults.empty())
    user_error(
        "{} of {} images of the {} split cannot be used; fix or remove them, or set data.bad_records=skip",
        faults.size(), num_images, split);
}

void check_labeled_images(const recipe::Recipe& recipe, const char* split, const DataReport& report) {
  const auto dataset = open_any_dataset(dataset_options(recipe, split), recipe.model.num_classes);
  report.line(fmt::format("{}: {} images of {}x{}x{}, {} classes", split, dataset->size(),
                          dataset->image_size().width, dataset->image_size().height, dataset->channels(),
                          dataset->class_names().size()));
  report.notes(dataset->notes());
  if (dataset->holds_floats()) return;
  const data::DatasetCheck check = data::check_dataset(*dataset);
  for (size_t i = 0; i < check.per_class.size(); ++i)
    report.line(fmt::format("  {:<20} {}", dataset->class_names()[i], check.per_class[i]));
  report.refuse(check.faults, dataset->size(), split);
}

}  // namespace hearth::tasks
