#include <fmt/ranges.h>

#include <set>

#include "base/error.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "data/captions/image_files.h"
#include "run/predict_session.h"

namespace hearth::cli {
namespace {

struct PredictArguments {
  std::string run, out;
  std::vector<std::string> rest;
};

/// Returns the images among the arguments, and the images in those arguments that are folders.
std::vector<fs::path> images_of(const std::vector<std::string>& names) {
  std::vector<fs::path> images;
  for (const std::string& name : names) {
    if (!fs::is_directory(name)) {
      images.emplace_back(name);
      continue;
    }
    for (const auto& [stem, path] : data::image_files(name)) images.push_back(path);
  }
  if (images.empty())
    user_error("there are no images ({}) in {}; try a folder that contains images directly",
               data::kImageFormats, fmt::join(names, ", "));
  return images;
}

void check_names(const std::vector<fs::path>& images) {
  std::set<fs::path> seen;
  for (const fs::path& image : images) {
    if (seen.insert(image.stem()).second) continue;
    user_error("two images are named {}, but predictions are named after their images; rename one",
               image.stem().string());
  }
}

void run_predict(const PredictArguments& arguments) {
  std::vector<std::string> names, overrides;
  for (const std::string& text : arguments.rest)
    (text.find('=') != text.npos && !fs::exists(text) ? overrides : names).push_back(text);
  const recipe::Recipe recipe = open_run(arguments.run, overrides);
  const std::vector<fs::path> images = images_of(names);
  run::PredictSession session(recipe, arguments.run, arguments.out);
  if (session.writes_files()) check_names(images);
  for (const fs::path& image : images) say("{}\n", session.predict(image));
  session.finish();
  say("weights: {}\n", session.weights().string());
}

}  // namespace

void add_predict(CLI::App& app) {
  const auto arguments = std::make_shared<PredictArguments>();
  CLI::App* verb = app.add_subcommand("predict",
                                      "Classify, segment or detect objects in images with the best weights "
                                      "of a run (its last ones if it has no best)");
  verb->add_option("run", arguments->run, "Run folder")->required();
  verb->add_option("images", arguments->rest, "Image files or folders of images; also recipe overrides")
      ->required();
  verb->add_option("--out", arguments->out,
                   "Output folder for images of predictions (default: RUN/predictions)");
  set_example(*verb, "hearth predict runs/demo IMAGE.png");
  verb->callback([=] { run_predict(*arguments); });
}

}  // namespace hearth::cli
