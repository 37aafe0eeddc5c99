#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "data/captions/captions.h"
#include "models/model.h"
#include "run/from_recipe.h"
#include "run/launch.h"
#include "run/resolve.h"
#include "tasks/classify/tensors_dataset.h"
#include "tasks/data_options.h"
#include "tasks/detect/detect_recipe.h"
#include "tasks/detect/detector.h"
#include "tasks/diffuse/diffuse_recipe.h"
#include "tasks/language/language_recipe.h"
#include "tasks/language/text_source.h"
#include "tasks/task_def.h"
#include "text/inspect.h"

namespace hearth::cli {
namespace {

void run_ls(bool keys, bool markdown) {
  if (keys) {
    const recipe::Choices& choices = run::recipe_choices();
    say("{}", markdown ? recipe::describe_keys_in_markdown(choices) : recipe::describe_keys(choices));
    return;
  }
  say("recipes (hearth cp NAME FILE.yaml copies one):\n");
  for (const BuiltInRecipe& recipe : built_in_recipes()) {
    const std::string text = recipe.text;
    say("  {:<24} {}\n", recipe.name, text.substr(2, text.find('\n') - 2));
  }
  say("models:\n");
  for (const models::ModelDef& model : models::model_list()) say("  {:<24} {}\n", model.name, model.doc);
  for (const tasks::DetectorDef& model : tasks::detectors()) say("  {:<24} {}\n", model.name, model.doc);
  say("hearth ls --keys lists every key of a recipe\n");
}

void run_cp(const std::string& name, const std::string& file) {
  if (fs::exists(file)) user_error("{} exists already; choose another name", file);
  for (const BuiltInRecipe& recipe : built_in_recipes()) {
    if (name != recipe.name) continue;
    write_file_atomically(file, recipe.text);
    say("wrote {}\n", file);
    return;
  }
  user_error("'{}' is no built-in recipe; hearth ls lists them", name);
}

/// Groups faults that differ only in numbers and file names: returns the first of each group, with the number
/// of similar ones.
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

/// Lists what is wrong with images, if anything is.
void refuse(const std::vector<std::string>& faults, int64_t num_images, const char* split) {
  for (const std::string& line : grouped(faults)) say("  bad: {}\n", line);
  if (faults.empty()) return;
  user_error("{} of {} images of the {} split cannot be used", faults.size(), num_images, split);
}

void check_split(const recipe::Recipe& recipe, const char* split) {
  const auto dataset =
      tasks::open_any_dataset(tasks::dataset_options(recipe, split), recipe.model.num_classes);
  say("{}: {} images of {}x{}x{}, {} classes\n", split, dataset->size(), dataset->image_size().width,
      dataset->image_size().height, dataset->channels(), dataset->class_names().size());
  for (const std::string& note : dataset->notes()) say("  note: {}\n", note);
  if (dataset->holds_floats()) return;
  const data::DatasetCheck check = data::check_dataset(*dataset);
  for (size_t i = 0; i < check.per_class.size(); ++i) {
    say("  {:<20} {}\n", dataset->class_names()[i], check.per_class[i]);
  }
  refuse(check.faults, dataset->size(), split);
}

void check_masks(const recipe::Recipe& recipe, const char* split) {
  const auto images = data::open_masks(tasks::mask_options(recipe, split));
  const data::MaskCheck check = data::check_masks(*images);
  say("{}: {} images with masks, {} classes\n", split, check.num_images, check.classes.size());
  for (const std::string& note : images->notes()) say("  note: {}\n", note);
  int64_t all = check.unlabeled;
  for (const int64_t pixels : check.pixels) all += pixels;
  const auto line = [&](const std::string& name, int64_t pixels) {
    say("  {:<20} {} pixels ({:.2f}%)\n", name, pixels,
        all == 0 ? 0.0 : 100.0 * static_cast<double>(pixels) / static_cast<double>(all));
  };
  for (size_t i = 0; i < check.pixels.size(); ++i) line(check.classes[i].name, check.pixels[i]);
  line("unlabeled", check.unlabeled);
  refuse(check.faults, check.num_images, split);
}

void check_boxes(const recipe::Recipe& recipe, const char* split) {
  const data::BoxedPictures set = tasks::boxed_pictures(recipe, split);
  const data::BoxCheck check = data::check_boxes(set);
  say("{}: {} images, {} classes, {} images without boxes\n", split, set.pictures.size(),
      set.class_names.size(), check.pictures_without_boxes);
  for (size_t i = 0; i < check.classes.size(); ++i) {
    const data::BoxCheck::Class& one = check.classes[i];
    say("  {:<20} {} boxes on {} images: {} small, {} medium, {} large\n", set.class_names[i], one.boxes,
        one.pictures, one.small, one.medium, one.large);
  }
  if (check.turned_upright > 0)
    say("  note: {} images are turned upright by their EXIF orientation; data.exif=ignore keeps the stored "
        "pixels\n",
        check.turned_upright);
  if (check.kept_as_stored > 0)
    say("  note: {} images have an EXIF orientation that is not applied, since their boxes are those of the "
        "stored pixels\n",
        check.kept_as_stored);
  for (const std::string& note : set.notes) say("  note: {}\n", note);
  refuse(check.faults, std::ssize(set.pictures), split);
}

/// Decodes every image with a caption, of the data and of diffuse.prior.
void check_captions(const recipe::Recipe& recipe) {
  const bool skips = recipe.data.bad_records == recipe::BadRecords::skip;
  const fs::path prior = recipe.diffuse.prior.empty() ? data::regularization_folder(recipe.data.path)
                                                      : fs::path(recipe.diffuse.prior);
  for (const fs::path& folder : {recipe.data.path, prior}) {
    if (folder.empty() || skips) continue;
    const auto pictures = data::read_captions(folder, recipe.diffuse.trigger, recipe.data.exif,
                                              recipe.data.allow_outside, true);
    const data::ReadCheck check = data::check_captioned(pictures, recipe::num_threads(recipe));
    say("{}: {} images with captions: {}\n", folder.string(), pictures.size(),
        data::describe_captions(pictures));
    refuse(check.faults, std::ssize(pictures), "training");
  }
}

/// Prints what training would see of a file; the number of records that cannot be used.
int64_t check_text(const tasks::TextSource& source, const recipe::Recipe& recipe, const fs::path& path) {
  const text::DataFile file = source.open(path);
  const text::SampleReader reader = source.reader(file);
  const bool color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const text::InspectOptions options{.marking = color ? text::Marking::color : text::Marking::signs,
                                     .context = recipe.data.context,
                                     .check = [&](const text::Sample& sample) {
                                       tasks::check_answers(sample, reader, recipe::has_pairs(recipe));
                                     }};
  const text::TextSummary summary = text::summarize(reader, options);
  // It has colors, and its texts are printable.
  std::fputs(text::describe(summary, reader, options).c_str(), stdout);
  return summary.faults.total();
}

/// How many records are left out.
int64_t check_texts(const recipe::Recipe& recipe) {
  const tasks::TextSource source(tasks::text_options(recipe),
                                 models::read_decoder_config(recipe.model.config_file()));
  int64_t num_left_out = 0;
  for (const fs::path& path : {recipe.data.path, fs::path(recipe.data.val_path)}) {
    if (path.empty() || path.extension() == ".safetensors") continue;
    const int64_t bad = check_text(source, recipe, path);
    if (bad > 0 && recipe.data.bad_records != recipe::BadRecords::skip)
      user_error("expected records that can be used, got {} in {} that cannot", bad, path.string());
    num_left_out += bad;
  }
  return num_left_out;
}

/// What training would refuse is refused by training's own code; beyond that, every image and every record
/// is read.
void run_validate(const CLI::App& verb, const std::string& name, const std::string& out) {
  const std::string folder = out.empty() ? run::default_folder(name) : out;
  const run::Resolved resolved = run::resolve(open_recipe(name, overrides_of(verb)), folder);
  const run::Job job{.recipe = resolved.recipe,
                     .notes = resolved.notes,
                     .out = folder,
                     .only_checks = true,
                     .open_reporter = open_terminal,
                     .tell = tell};
  const recipe::Recipe& recipe = job.recipe;
  // Training names one bad record; here all are listed.
  const int64_t num_left_out = recipe::is_text(recipe) ? check_texts(recipe) : 0;
  if (exit_code() = run::launch(job); exit_code() != 0) return;
  if (recipe.data.kind == tasks::kCaptions) {
    check_captions(recipe);
  } else if (!recipe::is_text(recipe) && recipe.data.kind != tasks::kKohya) {
    const std::string_view task = tasks::task_of(recipe).name;
    const auto check = task == "detect" ? check_boxes : task == "segment" ? check_masks : check_split;
    for (const char* split : {"train", "test"}) check(recipe, split);
  }
  const std::string but = num_left_out == 0 ? ""
                                            : fmt::format("; of its data, {} bad record{} left out",
                                                          num_left_out, num_left_out == 1 ? " is" : "s are");
  say("the recipe is well-formed{}\n", but);
}

}  // namespace

void add_ls(CLI::App& app) {
  const auto keys = std::make_shared<bool>(false), markdown = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("ls", "List recipes and models");
  CLI::Option* all = verb->add_flag("--keys", *keys, "list every key of a recipe with its default");
  verb->add_flag("--markdown", *markdown, "print the keys as tables in Markdown")->needs(all);
  set_example(*verb, "hearth ls --keys");
  verb->callback([=] { run_ls(*keys, *markdown); });
}

void add_cp(CLI::App& app) {
  const auto names = std::make_shared<std::pair<std::string, std::string>>();
  CLI::App* verb = app.add_subcommand("cp", "Copy a built-in recipe to a file of your own");
  verb->add_option("recipe", names->first, "name, for example demo")->required();
  verb->add_option("file", names->second, "file to write")->required();
  set_example(*verb, "hearth cp demo mine.yaml");
  verb->callback([=] { run_cp(names->first, names->second); });
}

void add_validate(CLI::App& app) {
  const auto names = std::make_shared<std::pair<std::string, std::string>>();
  CLI::App* verb =
      app.add_subcommand("validate", "Check a recipe, its data and its memory before a long run");
  verb->add_option("recipe", names->first, "recipe file")->required();
  verb->add_option("--out", names->second, "run folder that training would be given (default: runs/NAME)");
  allow_overrides(*verb);
  set_example(*verb, "hearth validate recipes/llama-lora.yaml model=MODEL data=FILE.jsonl");
  verb->callback([=] { run_validate(*verb, names->first, names->second); });
}

}  // namespace hearth::cli
