/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel module that does nothing. It exists so that building, vermagic, dkms and depmod are real in a lab node;
 * its name and version are those of the driver it stands for.
 */
#include <linux/init.h>
#include <linux/module.h>

static int __init lab_init(void)
{
	return 0;
}

static void __exit lab_exit(void)
{
}

module_init(lab_init);
module_exit(lab_exit);
MODULE_DESCRIPTION("stand-in built by the fleet lab");
MODULE_LICENSE(LAB_LICENCE);
MODULE_VERSION(LAB_VERSION);
