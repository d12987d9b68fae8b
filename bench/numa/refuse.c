/* Preloaded into a server: the system calls that place memory are forbidden, as in many a container. */
#include <errno.h>

long
mbind(void)
{
	errno = EPERM;
	return -1;
}

long
set_mempolicy(void)
{
	errno = EPERM;
	return -1;
}
